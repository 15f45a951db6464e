/* SPDX-License-Identifier: GPL-2.0-only
   Foreign keys, from the server's words to the engine's and back. What they ask of rows is the engine's. */
#include "definition.h"
#include "foreign.h"
#include "errors.h"
#include "ha_trefoil.h"

#include "sql_show.h"
#include "sql_table.h"
#include "table_cache.h"

namespace {

/* The engine's name of a table. Where case does not count a foreign key names its parent as it was typed, and tables are kept in lower case. */
std::string path_of(const LEX_CSTRING &db, const LEX_CSTRING &table)
{
  char encoded[FN_REFLEN], lower[FN_REFLEN];
  std::string path;
  for (LEX_CSTRING name : {db, table})
  {
    lower[lower_case_table_names ? files_charset_info->casedn(name.str, name.length, lower, sizeof lower - 1) : 0]= 0;
    path.append(path.empty() ? "" : "/").append(encoded, tablename_to_filename(*lower ? lower : name.str, encoded, sizeof encoded));
  }
  return path;
}

/* The other way. */
void names_of(trefoil_text path, std::string *db, std::string *table)
{
  std::string all(path.ptr, path.len);
  size_t slash= all.rfind('/');
  char decoded[NAME_LEN + 1];
  std::string first= slash == std::string::npos ? std::string() : all.substr(0, slash);
  std::string last= slash == std::string::npos ? all : all.substr(slash + 1);
  db->assign(decoded, filename_to_tablename(first.c_str(), decoded, sizeof decoded));
  table->assign(decoded, filename_to_tablename(last.c_str(), decoded, sizeof decoded));
  /* The server's own names are not encoded. */
  if (!strncmp(last.c_str(), STRING_WITH_LEN("#sql")))
    *table= last;
}

static_assert(FK_OPTION_RESTRICT == 1 && FK_OPTION_SET_DEFAULT == 5, "as in foreign.rs");

void append_quoted(String *to, const char *ptr, size_t length)
{
  append_identifier(current_thd, to, ptr, length);
}

void append_columns(String *to, const trefoil_text *columns, uint32_t count)
{
  to->append('(');
  for (uint32_t n= 0; n < count; n++)
  {
    if (n)
      to->append(STRING_WITH_LEN(", "));
    append_quoted(to, columns[n].ptr, columns[n].len);
  }
  to->append(')');
}

/* As SHOW CREATE TABLE has it. */
void append_foreign(String *to, const trefoil_foreign *one)
{
  std::string db, table, parent_db, parent;
  names_of(one->table, &db, &table);
  names_of(one->parent, &parent_db, &parent);
  to->append(STRING_WITH_LEN("CONSTRAINT "));
  append_quoted(to, one->name.ptr, one->name.len);
  to->append(STRING_WITH_LEN(" FOREIGN KEY "));
  append_columns(to, one->columns, one->count);
  to->append(STRING_WITH_LEN(" REFERENCES "));
  if (db != parent_db)
  {
    append_quoted(to, parent_db.data(), parent_db.size());
    to->append('.');
  }
  append_quoted(to, parent.data(), parent.size());
  to->append(' ');
  append_columns(to, one->parent_columns, one->count);
  for (const auto &[when, action] : {std::pair(" ON DELETE ", one->on_delete), std::pair(" ON UPDATE ", one->on_update)})
    if (action > FK_OPTION_RESTRICT)
    {
      to->append(when, strlen(when));
      to->append(*fk_option_name((enum_fk_option) action));
    }
}

void show_create(void *to, const trefoil_foreign *one)
{
  String *text= static_cast<String *>(to);
  text->append(STRING_WITH_LEN(",\n  "));
  append_foreign(text, one);
}

struct Search
{
  std::string name;
  String *text;
};

void show_failed(void *to, const trefoil_foreign *one)
{
  Search *search= static_cast<Search *>(to);
  if (search->name == std::string(one->name.ptr, one->name.len))
    append_foreign(search->text, one);
}

void count_only(void *, const trefoil_foreign *) {}

/* A cascade writes its columns. */
bool writes(const trefoil_foreign *one)
{
  return one->on_delete == FK_OPTION_SET_NULL || one->on_update == FK_OPTION_SET_NULL || one->on_update == FK_OPTION_CASCADE;
}

/* Of the tables that foreign keys are looked at for. */
struct Written
{
  const TABLE *table;
  bool any, hashed;
};

bool is_named(const Field *field, trefoil_text name)
{
  return field->field_name.length == name.len &&
         !my_strnncoll(system_charset_info, (const uchar *) field->field_name.str, name.len, (const uchar *) name.ptr, name.len);
}

/* Whether the server makes a hash of the column, for a unique key that is too long for others. */
bool is_hashed(const TABLE *table, trefoil_text column)
{
  for (uint n= 0; n < table->s->keys; n++)
  {
    const KEY &key= table->key_info[n];
    if (key.algorithm != HA_KEY_ALG_LONG_HASH)
      continue;
    /* The parts are in front of the hash, which stands for them. */
    const Field *hash= table->field[key.key_part->fieldnr - 1];
    uint parts= static_cast<Item_func_hash *>(hash->vcol_info->expr)->argument_count();
    for (uint part= 1; part <= parts; part++)
      if (is_named(table->field[(key.key_part - part)->fieldnr - 1], column))
        return true;
  }
  return false;
}

void note_writing(void *to, const trefoil_foreign *one)
{
  Written *written= static_cast<Written *>(to);
  if (!writes(one))
    return;
  written->any= true;
  for (uint32_t n= 0; n < one->count; n++)
    written->hashed|= is_hashed(written->table, one->columns[n]);
}

bool is_versioned(THD *thd, trefoil_text path)
{
  std::string of, table;
  names_of(path, &of, &table);
  LEX_CSTRING db= {of.data(), of.size()}, name= {table.data(), table.size()};
  TABLE_LIST list;
  list.init_one_table(&db, &name, nullptr, TL_READ);
  Dummy_error_handler missing;
  thd->push_internal_handler(&missing);
  TABLE_SHARE *share= tdc_acquire_share(thd, &list, GTS_TABLE);
  thd->pop_internal_handler();
  bool versioned= share && share->versioned;
  if (share)
    tdc_release_share(share);
  return versioned;
}

struct List_of_keys
{
  THD *thd;
  List<FOREIGN_KEY_INFO> *keys;
};

LEX_CSTRING *string_of(THD *thd, const char *ptr, size_t length)
{
  return thd_make_lex_string(thd, nullptr, ptr, length, 1);
}

void list(void *to, const trefoil_foreign *one)
{
  List_of_keys *all= static_cast<List_of_keys *>(to);
  THD *thd= all->thd;
  FOREIGN_KEY_INFO *info= new (thd->alloc(sizeof(FOREIGN_KEY_INFO))) FOREIGN_KEY_INFO;
  std::string db, table, parent_db, parent;
  names_of(one->table, &db, &table);
  names_of(one->parent, &parent_db, &parent);
  info->foreign_id= string_of(thd, one->name.ptr, one->name.len);
  info->foreign_db= string_of(thd, db.data(), db.size());
  info->foreign_table= string_of(thd, table.data(), table.size());
  info->referenced_db= string_of(thd, parent_db.data(), parent_db.size());
  info->referenced_table= string_of(thd, parent.data(), parent.size());
  info->referenced_key_name= one->parent_key.len ? string_of(thd, one->parent_key.ptr, one->parent_key.len) : nullptr;
  info->delete_method= (enum_fk_option) one->on_delete;
  info->update_method= (enum_fk_option) one->on_update;
  for (uint32_t n= 0; n < one->count; n++)
  {
    info->foreign_fields.push_back(string_of(thd, one->columns[n].ptr, one->columns[n].len));
    info->referenced_fields.push_back(string_of(thd, one->parent_columns[n].ptr, one->parent_columns[n].len));
    if (one->nullable & (1U << n))
      info->set_nullable(thd, false, n, one->count);
    if (one->parent_nullable & (1U << n))
      info->set_nullable(thd, true, n, one->count);
  }
  all->keys->push_back(info);
}

} // namespace

/* Whether one of them stays. */
void Foreign_change::note_kept(void *to, const trefoil_foreign *one)
{
  Kept *kept= static_cast<Kept *>(to);
  bool dropped= false;
  for (const trefoil_text &name : kept->change->m_dropped)
    dropped|= name.len == one->name.len && !my_strnncoll(system_charset_info, (const uchar *) name.ptr, name.len,
                                                         (const uchar *) one->name.ptr, one->name.len);
  kept->any|= !dropped;
}

Foreign_change::Foreign_change(THD *thd, const TABLE *table, const Alter_info *info, bool takes_place)
{
  const TABLE_SHARE *share= table->s;
  m_change.label= text(share->table_name);
  if (takes_place)
    m_change.like= keep(path_of(share->db, share->table_name));
  m_change.unchecked= thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS) != 0;
  if (info)
  {
    List_iterator_fast<Key> keys(const_cast<List<Key> &>(info->key_list));
    while (const Key *key= keys++)
      /* What the table has the engine knows. */
      if (key->type == Key::FOREIGN_KEY && !key->old)
        add(table, *static_cast<const Foreign_key *>(key));
    List_iterator_fast<Alter_drop> drops(const_cast<List<Alter_drop> &>(info->drop_list));
    while (const Alter_drop *drop= drops++)
      if (drop->type == Alter_drop::FOREIGN_KEY)
        m_dropped.push_back(keep(drop->name));
  }
  m_change.added= m_added.data();
  m_change.added_count= (uint32_t) m_added.size();
  m_change.dropped= m_dropped.data();
  m_change.dropped_count= (uint32_t) m_dropped.size();
}

trefoil_text Foreign_change::keep(const std::string &name)
{
  m_names.push_back(name);
  return text(m_names.back().data(), m_names.back().size());
}

void Foreign_change::add(const TABLE *table, const Foreign_key &key)
{
  trefoil_foreign to{};
  if (key.constraint_name.str)
    to.name= text(key.constraint_name);
  else if (key.name.str)
    to.name= text(key.name);
  std::string parent= path_of(key.ref_db.str ? key.ref_db : table->s->db, key.ref_table);
  to.parent= keep(parent);
  /* The table's own definition is not to be looked for while it is made: the server would keep it if that fails. */
  if (parent != path_of(table->s->db, table->s->table_name))
    m_parents.push_back(to.parent);
  for (const List<Key_part_spec> *columns : {&key.columns, &key.ref_columns})
  {
    m_columns.emplace_back();
    List_iterator_fast<Key_part_spec> parts(const_cast<List<Key_part_spec> &>(*columns));
    while (const Key_part_spec *part= parts++)
      m_columns.back().push_back(text(part->field_name));
    (columns == &key.columns ? to.columns : to.parent_columns)= m_columns.back().data();
  }
  to.count= key.columns.elements;
  to.on_delete= (uint8_t) key.delete_opt;
  to.on_update= (uint8_t) key.update_opt;
  m_added.push_back(to);
}

/* What the server makes of other columns is kept in the row, and the engine cannot make it. */
const char *Foreign_change::writes_under_generated(const TABLE *table, trefoil_text before) const
{
  bool is_generated= false;
  for (uint n= 0; n < table->s->fields; n++)
    is_generated|= table->field[n]->vcol_info && !(table->field[n]->flags & LONG_UNIQUE_HASH_FIELD) &&
                   is_kept(table, table->field[n]);
  Written written= {table, false, false};
  for (const trefoil_foreign &one : m_added)
    note_writing(&written, &one);
  if (before.len)
    trefoil_foreign_each(trefoil_db, before, 0, note_writing, &written);
  if (written.hashed)
    return "ON UPDATE CASCADE and SET NULL are not for columns of a unique key so long that the server makes a hash of it";
  if (is_generated && written.any)
    return "ON UPDATE CASCADE and SET NULL are not for tables with generated columns that are stored or in a key";
  return nullptr;
}

/* With versions a row that is deleted stays, with another end: children would keep a parent that is gone. `name`: of the table,
   or of the one that was there before. */
bool Foreign_change::meets_versions(THD *thd, const TABLE *table, trefoil_text name) const
{
  Kept kept= {this, false};
  if (name.len)
    trefoil_foreign_each(trefoil_db, name, 0, note_kept, &kept);
  if (table->versioned() && (m_change.added_count || kept.any ||
                             (name.len && trefoil_foreign_each(trefoil_db, name, 1, count_only, nullptr))))
    return true;
  for (trefoil_text parent : m_parents)
    if (is_versioned(thd, parent))
      return true;
  return false;
}

bool refuse_versions()
{
  my_printf_error(ER_UNSUPPORTED_EXTENSION,
                  "ENGINE=TREFOIL does not support foreign keys of and to tables WITH SYSTEM VERSIONING", MYF(0));
  return true;
}

std::string label_of(trefoil_text path)
{
  std::string all(path.ptr, path.len);
  char decoded[NAME_LEN + 1];
  /* A partition's is none, and not complained of. */
  return std::string(decoded, filename_to_tablename(all.c_str() + all.rfind('/') + 1, decoded, sizeof decoded, true));
}

bool takes_place(const char *path)
{
  const char *last= strrchr(path, '/');
  return !strncmp(last ? last + 1 : path, STRING_WITH_LEN("#sql-alter-"));
}

int foreign_error(THD *thd, const trefoil_failure &why, bool changes)
{
  switch (why.code) {
  case TREFOIL_FOREIGN_EXISTS: return HA_ERR_FOUND_DUPP_KEY;
  case TREFOIL_FOREIGN_REFUSED:
  case TREFOIL_REFERENCED:
  case TREFOIL_INDEX_NEEDED:
    if (changes && why.code != TREFOIL_FOREIGN_REFUSED)
    {
      /* The list of the change itself has lost them by now. */
      List_iterator_fast<Alter_drop> drops(thd->lex->alter_info.drop_list);
      while (const Alter_drop *drop= drops++)
        if (drop->type == Alter_drop::KEY)
        {
          my_error(ER_DROP_INDEX_FK, MYF(0), drop->name);
          return HA_WRONG_CREATE_OPTION;
        }
    }
    push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, why.text);
    return HA_ERR_CANNOT_ADD_FOREIGN;
  default: return 0;
  }
}

void describe_foreign(const trefoil_failure &why, String *text)
{
  const char *newline= strchr(why.text, '\n');
  if (!newline)
    return;
  trefoil_text child= {why.text, (size_t) (newline - why.text)};
  std::string db, table;
  names_of(child, &db, &table);
  append_quoted(text, db.data(), db.size());
  text->append('.');
  append_quoted(text, table.data(), table.size());
  text->append(STRING_WITH_LEN(", "));
  Search search= {newline + 1, text};
  trefoil_foreign_each(trefoil_db, child, 0, show_failed, &search);
}

/* Given back below. */
char *ha_trefoil::get_foreign_key_create_info()
{
  String text;
  text.set_charset(system_charset_info);
  trefoil_foreign_each(trefoil_db, own_name(), 0, show_create, &text);
  return text.length() ? my_strndup(PSI_NOT_INSTRUMENTED, text.ptr(), text.length(), MYF(0)) : nullptr;
}

void ha_trefoil::free_foreign_key_create_info(char *text) { my_free(text); }

static int list_keys(trefoil_text of, uint8_t as_parent, List_of_keys all)
{
  trefoil_foreign_each(trefoil_db, of, as_parent, list, &all);
  return 0;
}

int ha_trefoil::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *all)
{
  return list_keys(own_name(), 0, {thd, all});
}

int ha_trefoil::get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *all)
{
  return list_keys(own_name(), 1, {thd, all});
}

/* A cascade came to a row that would be there twice; the failure names table and key. */
bool ha_trefoil::get_foreign_dup_key(char *child, uint child_room, char *key, uint key_room)
{
  size_t length= strcspn(m_why.text, "\n");
  std::string db, table;
  names_of({m_why.text, length}, &db, &table);
  my_snprintf(child, child_room, "%s", table.c_str());
  my_snprintf(key, key_room, "%s", m_why.text + length + (m_why.text[length] != 0));
  return true;
}

bool ha_trefoil::referenced_by_foreign_key() const noexcept
{
  return trefoil_foreign_each(trefoil_db, own_name(), 1, count_only, nullptr) != 0;
}

bool ha_trefoil::has_foreign_keys() const noexcept
{
  return trefoil_foreign_each(trefoil_db, own_name(), 0, count_only, nullptr) != 0;
}

bool ha_trefoil::can_switch_engines() { return !has_foreign_keys() && !referenced_by_foreign_key(); }

bool ha_trefoil::is_fk_defined_on_table_or_index(uint index)
{
  return index == MAX_KEY && !can_switch_engines();
}

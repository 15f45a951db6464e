/* SPDX-License-Identifier: GPL-2.0-only
   Tables changed in place. What the engine can do is asked of it: here stands what only the server knows. */
#include "definition.h"
#include "foreign.h"
#include "errors.h"
#include "ha_trefoil.h"
#include "options.h"
#include "progress.h"
#include "transaction.h"

#include "sql_table.h"
#include "versions.h"

namespace {

class Change final : public inplace_alter_handler_ctx
{
public:
  explicit Change(trefoil_alter *alter) : m_alter(alter) {}
  ~Change() override { trefoil_alter_close(m_alter); }
  trefoil_alter *const m_alter;
};

/* Everything else is done by a copy. */
const alter_table_operations IN_PLACE=
  ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX |
  ALTER_DROP_UNIQUE_INDEX | ALTER_RENAME_INDEX | ALTER_INDEX_ORDER | ALTER_CHANGE_INDEX_COMMENT |
  ALTER_INDEX_IGNORABILITY | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_ADD_STORED_BASE_COLUMN |
  ALTER_DROP_STORED_COLUMN | ALTER_COLUMN_NAME | ALTER_STORED_COLUMN_ORDER | ALTER_VIRTUAL_COLUMN_ORDER |
  ALTER_COLUMN_DEFAULT | ALTER_OPTIONS | ALTER_RENAME | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE |
  ALTER_COLUMN_INDEX_LENGTH | ALTER_DROP_CHECK_CONSTRAINT | ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY;

bool is_added(const Alter_inplace_info *info, const KEY &key)
{
  for (uint n= 0; n < info->index_add_count; n++)
    if (is_same_name(info->key_info_buffer[info->index_add_buffer[n]].name, key.name))
      return true;
  return false;
}

/* A hash that the server makes for a unique key is made anew by each of its changes, although the key stays. */
const Field *hash_before(const TABLE *table, const TABLE *altered, const Alter_inplace_info *info, const Field *hash)
{
  for (uint n= 0; n < altered->s->keys; n++)
  {
    const KEY &key= altered->key_info[n];
    if (key.algorithm != HA_KEY_ALG_LONG_HASH || key.key_part->fieldnr != hash->field_index + 1 || is_added(info, key))
      continue;
    for (uint old= 0; old < table->s->keys; old++)
      if (table->key_info[old].algorithm == HA_KEY_ALG_LONG_HASH &&
          is_same_name(table->key_info[old].name, key.name))
        return table->field[table->key_info[old].key_part->fieldnr - 1];
  }
  return nullptr;
}

/* Where the columns that the engine keeps come from, as the definitions number them; null, or why they have to be made
   row by row. */
const char *origins(const TABLE *table, const TABLE *altered, Alter_inplace_info *info, std::vector<int32_t> *out)
{
  std::vector<int32_t> numbers(table->s->fields, -1);
  int32_t next= 0;
  for (uint n= 0; n < table->s->fields; n++)
    if (is_kept(table, table->field[n]))
      numbers[n]= next++;
  List_iterator_fast<Create_field> columns(info->alter_info->create_list);
  for (uint n= 0; n < altered->s->fields; n++)
  {
    const Create_field *column= columns++;
    const Field *field= altered->field[n];
    if (!is_kept(altered, field))
      continue;
    const Field *before= column ? column->field : nullptr;
    if (!before && (field->flags & LONG_UNIQUE_HASH_FIELD))
      before= hash_before(table, altered, info, field);
    if (before)
    {
      if (numbers[before->field_index] < 0)
        return "a generated column that was not kept gets into a key";
      out->push_back(numbers[before->field_index]);
      continue;
    }
    if (field->vcol_info || field->default_value || (field->flags & AUTO_INCREMENT_FLAG) ||
        field->has_default_now_unireg_check())
      return "the value of an added column is not the same for all rows";
    out->push_back(-1);
  }
  return nullptr;
}

/* An error is left to the copy, which finds the same. */
bool is_refused(THD *thd, const TABLE *altered, const HA_CREATE_INFO *create)
{
  Dummy_error_handler handler;
  thd->push_internal_handler(&handler);
  bool refused= refuse_definition(altered, create);
  thd->pop_internal_handler();
  return refused;
}

const char *only_by_copy(THD *thd, const TABLE *table, const TABLE *altered, const Alter_inplace_info *info)
{
  if (table->part_info || altered->part_info)
    return "partitions cannot be changed all at once";
  if (info->handler_flags & ~IN_PLACE)
    return "rows are written anew, or checked";
  /* As it is with InnoDB: the rows that are there are looked at as they are copied. */
  if ((info->handler_flags & ALTER_ADD_FOREIGN_KEY) && !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS))
    return "every row's parent is looked for; try foreign_key_checks=0";
  if (table->s->table_type == TABLE_TYPE_SEQUENCE)
    return "a sequence is written anew";
  if (info->ignore || info->error_if_not_empty)
    return "every row is looked at";
  if (info->create_info->used_fields & HA_CREATE_USED_AUTO)
    return "the counter of AUTO_INCREMENT is set";
  return is_refused(thd, altered, info->create_info) ? "the new definition is not supported" : nullptr;
}

/* Of foreign keys, in InnoDB's words. */
bool is_said_in_prepare(const trefoil_failure &why)
{
  return why.code == TREFOIL_INDEX_NEEDED || why.code == TREFOIL_FOREIGN_EXISTS || why.code == TREFOIL_PARENT_UNFIT ||
         why.code == TREFOIL_NEVER_NULL;
}

void say_refusal(const TABLE *table, const trefoil_failure &why)
{
  std::string name= std::string(table->s->db.str) + '/' + why.text;
  size_t line= strcspn(why.text, "\n");
  if (why.code == TREFOIL_INDEX_NEEDED)
    my_error(ER_DROP_INDEX_FK, MYF(0), why.text);
  else if (why.code == TREFOIL_FOREIGN_EXISTS)
    my_error(ER_DUP_CONSTRAINT_NAME, MYF(0), "FOREIGN KEY", name.c_str());
  else if (why.code == TREFOIL_NEVER_NULL)
    my_error(ER_FK_INCORRECT_OPTION, MYF(0), table->s->table_name.str, name.c_str());
  else
    my_error(ER_FK_NO_INDEX_PARENT, MYF(0), why.text + line + 1, label_of(text(why.text, line)).c_str());
}

} // namespace

int ha_trefoil::plan(TABLE *altered, Alter_inplace_info *info, trefoil_alter **out, uint8_t *builds)
{
  std::vector<int32_t> from;
  if ((info->unsupported_reason= origins(table, altered, info, &from)))
    return TREFOIL_UNSUPPORTED;
  Definition definition(altered);
  Foreign_change foreign(ha_thd(), altered, info->alter_info, false);
  if (foreign.meets_versions(ha_thd(), altered, own_name()))
    info->unsupported_reason= "foreign keys are not for tables with system versioning";
  else if (foreign.writes_under_generated(altered, own_name()))
    info->unsupported_reason= "a cascade would write under generated columns";
  if (info->unsupported_reason)
    return TREFOIL_UNSUPPORTED;
  return trefoil_alter_plan(m_table, definition.get(), from.data(), foreign.get(), out, builds, &m_why);
}

enum_alter_inplace_result ha_trefoil::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  THD *thd= ha_thd();
  if ((info->unsupported_reason= only_by_copy(thd, table, altered, info)))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  trefoil_alter *alter= nullptr;
  uint8_t builds= 0;
  if (plan(altered, info, &alter, &builds))
  {
    /* A copy would find the same: said in prepare. */
    if (!info->unsupported_reason && is_said_in_prepare(m_why))
      return HA_ALTER_INPLACE_INSTANT;
    if (!info->unsupported_reason)
      info->unsupported_reason= thd->strdup(m_why.text);
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  trefoil_alter_close(alter);
  return builds == TREFOIL_BUILDS_ROWS ? HA_ALTER_INPLACE_COPY_NO_LOCK : /* as InnoDB that makes a table anew */
         builds ? HA_ALTER_INPLACE_NOCOPY_NO_LOCK : HA_ALTER_INPLACE_INSTANT;
}

/* A string that may get longer is kept as it is. */
bool ha_trefoil::can_convert_nocopy(const Field &field, const Column_definition &to) const
{
  return field.real_type() == MYSQL_TYPE_VARCHAR && to.real_field_type() == MYSQL_TYPE_VARCHAR &&
         field.charset() == to.charset && field.field_length <= to.length;
}

bool ha_trefoil::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  trefoil_alter *alter= nullptr;
  uint8_t builds= 0;
  if (refuse_options(altered, info->create_info)) /* here its warnings are heard */
    return true;
  if (plan(altered, info, &alter, &builds))
  {
    if (is_said_in_prepare(m_why))
      say_refusal(table, m_why);
    else
      print_error(failed(), MYF(0));
    return true;
  }
  info->handler_ctx= new Change(alter);
  return false;
}

bool ha_trefoil::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  trefoil_alter *alter= static_cast<Change *>(info->handler_ctx)->m_alter;
  Build_progress progress(ha_thd(), m_table);
  trefoil_patience wait= progress.patience();
  int outcome= trefoil_alter_build(alter, altered->record[0], &wait, &m_why);
  if (outcome == TREFOIL_DUPLICATE && m_why.key >= 0)
    print_keydup_error(altered, &altered->key_info[m_why.key], MYF(0));
  else if (outcome)
    print_error(failed(), MYF(0));
  if (outcome == TREFOIL_LOCK_TIMEOUT)
    push_warning(ha_thd(), Sql_condition::WARN_LEVEL_WARN, ER_LOCK_WAIT_TIMEOUT, m_why.text); /* for what it has waited */
  return outcome != TREFOIL_OK;
}

bool ha_trefoil::commit_inplace_alter_table(TABLE *, Alter_inplace_info *info, bool commit)
{
  Change *change= static_cast<Change *>(info->handler_ctx);
  info->group_commit_ctx= nullptr;
  if (!change)
    return false;
  trefoil_patience wait= patience_of(ha_thd());
  if (!(commit ? trefoil_alter_commit(change->m_alter, &wait, &m_why) : trefoil_alter_undo(change->m_alter, &m_why)))
    return false;
  if (commit)
    print_error(failed(), MYF(0));
  else
    log_failure("a change of a table that is undone", m_why);
  return commit;
}

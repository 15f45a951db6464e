/* SPDX-License-Identifier: GPL-2.0-only */
#include "definition.h"

#include "options.h"
#include "sql_table.h"

static uint8_t kind_of(const Field *field)
{
  switch (field->real_type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
    return (field->flags & UNSIGNED_FLAG) ? TREFOIL_UNSIGNED : TREFOIL_SIGNED;
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET:
    return TREFOIL_UNSIGNED;
  case MYSQL_TYPE_FLOAT:
    return TREFOIL_FLOAT;
  case MYSQL_TYPE_DOUBLE:
    return TREFOIL_DOUBLE;
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_BIT: /* as characters: the engine has no bits beside the NULL bits */
    return TREFOIL_IMAGE;
  case MYSQL_TYPE_STRING:
    return TREFOIL_CHAR;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
    return TREFOIL_VARCHAR;
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED:
    return TREFOIL_BLOB;
  default:
    return 0;
  }
}

static trefoil_field describe(const TABLE *table, const Field *field)
{
  trefoil_field to{};
  to.name= text(field->field_name);
  to.kind= kind_of(field);
  to.offset= (uint32_t) field->offset(table->record[0]);
  to.length= field->pack_length();
  if (to.kind == TREFOIL_VARCHAR)
  {
    to.length_bytes= (uint8_t) static_cast<const Field_varstring *>(field)->length_bytes;
    to.length-= to.length_bytes;
  }
  else if (to.kind == TREFOIL_BLOB)
  {
    to.length_bytes= (uint8_t) static_cast<const Field_blob *>(field)->pack_length_no_ptr();
    to.length= field->field_length;
  }
  else if (to.kind == TREFOIL_CHAR)
    to.pad= field->charset()->pad_char;
  if (field->null_ptr)
  {
    to.null_offset= (uint32_t) (field->null_ptr - table->record[0]);
    to.null_bit= field->null_bit;
  }
  return to;
}

bool is_kept(const TABLE *table, const Field *field)
{
  if (field->stored_in_db())
    return true;
  for (uint n= 0; n < table->s->keys; n++)
  {
    const KEY &key= table->key_info[n];
    for (uint part= 0; part < key.user_defined_key_parts; part++)
      if (key.key_part[part].fieldnr - 1 == field->field_index)
        return true;
  }
  return false;
}

Definition::Definition(const TABLE *table)
{
  const TABLE_SHARE *share= table->s;
  const trefoil_table_options *options= table_options(share);
  std::vector<uint32_t> numbers(share->fields);
  for (uint n= 0; n < share->fields; n++)
  {
    numbers[n]= (uint32_t) m_fields.size();
    if (is_kept(table, table->field[n]))
      m_fields.push_back(describe(table, table->field[n]));
  }
  for (uint n= 0; n < share->keys; n++)
  {
    const KEY &key= table->key_info[n];
    m_parts.emplace_back();
    for (uint part= 0; part < key.user_defined_key_parts; part++)
      m_parts.back().push_back(numbers[key.key_part[part].fieldnr - 1]);
    trefoil_key to{};
    to.name= text(key.name);
    to.parts= key.user_defined_key_parts;
    to.unique= (key.flags & HA_NOSAME) != 0;
    settings(options, n == share->primary_key, &key, &to);
    m_keys.push_back(to);
  }
  for (size_t n= 0; n < m_keys.size(); n++)
    m_keys[n].fields= m_parts[n].data();
  m_definition= {m_fields.data(), m_keys.data(), share->default_values, (uint32_t) m_fields.size(),
                 (uint32_t) m_keys.size(), share->primary_key == MAX_KEY ? -1 : (int32_t) share->primary_key,
                 (uint32_t) share->reclength};
}

/* A string is ordered by the bytes that are stored: everything else waits for key images of collations. */
static bool is_ordered_by_bytes(const Field *field, uint8_t kind)
{
  CHARSET_INFO *cs= field->charset();
  if (cs == &my_charset_bin)
    return true;
  if (!(cs->state & MY_CS_BINSORT) || cs->mbminlen > 1)
    return false;
  /* CHAR is stored filled up; of VARCHAR the blanks at the end do not count, unless the collation says so. */
  return kind == TREFOIL_CHAR || (cs->state & MY_CS_NOPAD);
}

static bool refuse(const char *what, const char *name)
{
  my_printf_error(ER_UNSUPPORTED_EXTENSION, "ENGINE=TREFOIL does not support %s yet (`%s`)", MYF(0), what, name);
  return true;
}

static bool refuse_part(const KEY &key, const KEY_PART_INFO &part)
{
  const Field *field= part.field;
  const char *name= field->field_name.str;
  uint8_t kind= kind_of(field);
  if (part.key_part_flag & HA_REVERSE_SORT)
    return refuse("DESC in a key", name);
  if (kind == TREFOIL_BLOB || (part.key_part_flag & HA_PART_KEY_SEG))
    return refuse("keys on the beginning of a column", name);
  if ((kind == TREFOIL_CHAR || kind == TREFOIL_VARCHAR) && !is_ordered_by_bytes(field, kind))
  {
    char what[200];
    my_snprintf(what, sizeof what, "keys on strings of collation %s", field->charset()->coll_name.str);
    return refuse(what, name);
  }
  return false;
}

bool refuse_definition(const TABLE *table, const HA_CREATE_INFO *info)
{
  const TABLE_SHARE *share= table->s;
  for (uint n= 0; n < share->fields; n++)
  {
    const Field *field= table->field[n];
    if (!kind_of(field))
      return refuse("columns of this type", field->field_name.str);
  }
  for (uint n= 0; n < share->keys; n++)
  {
    const KEY &key= table->key_info[n];
    if (key.algorithm == HA_KEY_ALG_LONG_HASH)
      return refuse("unique keys on long columns", key.name.str);
    for (uint part= 0; part < key.user_defined_key_parts; part++)
      if (refuse_part(key, key.key_part[part]))
        return true;
  }
  if (info->alter_info)
  {
    List_iterator<Key> keys(info->alter_info->key_list);
    while (Key *key= keys++)
      if (key->type == Key::FOREIGN_KEY)
        return refuse("foreign keys", share->table_name.str);
  }
  return refuse_options(table, info);
}

/* SPDX-License-Identifier: GPL-2.0-only */
#include "definition.h"

#include "collations.h"
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
  case MYSQL_TYPE_FLOAT: return TREFOIL_FLOAT;
  case MYSQL_TYPE_DOUBLE: return TREFOIL_DOUBLE;
  case MYSQL_TYPE_TIME2:
  case MYSQL_TYPE_DATETIME2:
  case MYSQL_TYPE_TIMESTAMP2:
  case MYSQL_TYPE_NEWDECIMAL:
  case MYSQL_TYPE_BIT: /* as characters: the engine has no bits beside the NULL bits */
    return TREFOIL_IMAGE;
  case MYSQL_TYPE_STRING: return TREFOIL_CHAR;
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VARCHAR_COMPRESSED:
    return TREFOIL_VARCHAR;
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_BLOB_COMPRESSED:
  case MYSQL_TYPE_GEOMETRY:
    return TREFOIL_BLOB;
  default: return 0;
  }
}

/* What it is filled up with, and how long it is where that counts. */
static void describe_char(const Field *field, trefoil_field *to)
{
  CHARSET_INFO *cs= field->charset();
  if (!field->has_charset())
  {
    to->pad_length= 1;
    return;
  }
  to->pad_length= (uint8_t) my_ci_wc_mb(cs, ' ', to->pad, to->pad + sizeof to->pad);
  if (cs->state & MY_CS_NOPAD)
    to->characters= field->char_length();
}

/* Of text the front is counted in characters. `numbers` are those of the columns that are kept. */
static trefoil_part describe(const TABLE *table, const KEY_PART_INFO &part, const std::vector<uint32_t> &numbers)
{
  const Field *field= table->field[part.fieldnr - 1];
  uint8_t kind= kind_of(field);
  trefoil_part to{};
  to.field= numbers[part.fieldnr - 1];
  to.length= part.length;
  if (kind == TREFOIL_BLOB || (kind >= TREFOIL_CHAR && part.length < field->key_length()))
    to.front= part.length / field->charset()->mbmaxlen;
  to.descending= (part.key_part_flag & HA_REVERSE_SORT) != 0;
  return to;
}

static trefoil_field describe(const TABLE *table, const Field *field)
{
  trefoil_field to{};
  to.name= text(field->field_name);
  to.number= field->field_index;
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
    describe_char(field, &to);
  if (to.kind >= TREFOIL_CHAR && to.kind <= TREFOIL_BLOB)
    to.collation= collation_of(field);
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
    for (uint part= 0; part < key.ext_key_parts; part++)
      m_parts.back().push_back(describe(table, key.key_part[part], numbers));
    trefoil_key to{};
    to.name= text(key.name);
    to.part_count= key.user_defined_key_parts;
    to.extended= key.ext_key_parts - key.user_defined_key_parts;
    to.unique= (key.flags & HA_NOSAME) != 0;
    to.flags= key.algorithm == HA_KEY_ALG_LONG_HASH ? TREFOIL_CLAIMED : 0;
    if (is_clustering(key))
      to.flags|= TREFOIL_CLUSTERING;
    settings(options, &key, &to);
    m_keys.push_back(to);
  }
  for (size_t n= 0; n < m_keys.size(); n++)
    m_keys[n].parts= m_parts[n].data();
  m_definition= {m_fields.data(), m_keys.data(), share->default_values, (uint32_t) m_fields.size(),
                 (uint32_t) m_keys.size(), share->primary_key == MAX_KEY ? -1 : (int32_t) share->primary_key,
                 (uint32_t) share->reclength, {}};
  settings(options, nullptr, &m_definition.hidden);
}

static bool refuse(const char *what, const char *name)
{
  my_printf_error(ER_UNSUPPORTED_EXTENSION, "ENGINE=TREFOIL does not support %s yet (`%s`)", MYF(0), what, name);
  return true;
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
  return refuse_options(table, info);
}

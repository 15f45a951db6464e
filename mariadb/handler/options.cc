/* SPDX-License-Identifier: GPL-2.0-only */
#define ha_table_option_struct trefoil_table_options
#define ha_index_option_struct trefoil_key_options
#include "options.h"

#include "variables.h"
#include "versions.h"

/* 0 is "not said": a key then has what the table says. The other values are the table's, one further. */
#define STRUCTURES "default,auto,btree,betree,lsm"
#define COMPRESSIONS "default,none,lz4,zstd"
#define SHAPES "default,lazy,leveled,universal"

ha_create_table_option trefoil_key_option_list[]=
{
  HA_IOPTION_ENUM("STRUCTURE", structure, STRUCTURES, 0),
  HA_IOPTION_ENUM("SHAPE", shape, SHAPES, 0),
  HA_IOPTION_ENUM("COMPRESSION", compression, COMPRESSIONS, 0),
  HA_IOPTION_NUMBER("NODE_SIZE", node_size, 0, 0, 65536, 1),
  HA_IOPTION_BOOL("CLUSTERING", clustering, 0),
  HA_IOPTION_END
};

/* As the engine numbers it. */
static const uint8_t LSM= 3;

/* As the engine numbers them, whether it has them or not. */
static trefoil_key asked(const trefoil_table_options *table, const trefoil_key_options *own)
{
  static const uint8_t structures[]= {0, 0, 1, 2, 3};
  static const uint8_t compressions[]= {0, 1, 0, 2};
  uint structure= own ? own->structure : 0, compression= own ? own->compression : 0, shape= own ? own->shape : 0;
  ulonglong node_size= own ? own->node_size : 0;
  if (table)
  {
    structure= structure ? structure : table->structure + 1;
    compression= compression ? compression : table->compression + 1;
    node_size= node_size ? node_size : table->node_size;
    /* A key of another structure than the table's has none of its shapes. */
    if (!shape && (!own || structures[structure] == LSM))
      shape= table->shape;
  }
  trefoil_key to{};
  to.structure= structures[structure];
  to.shape= (uint8_t) shape;
  to.compression= compressions[compression];
  to.node_size= (uint32_t) node_size;
  return to;
}

static const trefoil_key_options *key_options(const KEY *key)
{
  return reinterpret_cast<const trefoil_key_options *>(key->option_struct);
}

void settings(const trefoil_table_options *table, const KEY *key, trefoil_key *to)
{
  trefoil_key fitting= asked(table, key ? key_options(key) : nullptr);
  trefoil_failure why{};
  /* That they do not fit was said when the table was made: refuse_options. */
  while (trefoil_key_fit(&fitting, &why) == TREFOIL_UNSUPPORTED)
    ;
  to->structure= fitting.structure;
  to->shape= fitting.shape;
  to->compression= fitting.compression;
  to->node_size= fitting.node_size;
}

bool is_clustering(const KEY &key)
{
  const trefoil_key_options *own= key_options(&key);
  return own && own->clustering && key.algorithm != HA_KEY_ALG_LONG_HASH;
}

bool options_differ(const TABLE_SHARE *share, const HA_CREATE_INFO *info)
{
  const trefoil_table_options *old= table_options(share), *now= info->option_struct;
  if (!old || !now)
    return false;
  return old->structure != now->structure || old->compression != now->compression || old->node_size != now->node_size ||
         old->shape != now->shape;
}

/* An error, or a warning that the default is taken. */
static bool misfit(uint code, const char *why)
{
  THD *thd= current_thd;
  if (wants_strict_options(thd))
    my_printf_error(code, "%s", MYF(0), why);
  else
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, code, "%s; the default is taken", why);
  return wants_strict_options(thd);
}

static bool refuse_settings(trefoil_key wanted)
{
  trefoil_failure why{};
  while (trefoil_key_fit(&wanted, &why) == TREFOIL_UNSUPPORTED)
  {
    char text[sizeof why.text + 32];
    my_snprintf(text, sizeof text, "ENGINE=TREFOIL: %s", why.text);
    if (misfit(ER_UNSUPPORTED_EXTENSION, text))
      return true;
  }
  return false;
}

/* Rows have one format, which grows with them: that is what the others ask for. */
static bool refuse_row_format(const HA_CREATE_INFO *info)
{
  if (!(info->used_fields & HA_CREATE_USED_ROW_FORMAT) ||
      (info->row_type != ROW_TYPE_FIXED && info->row_type != ROW_TYPE_PAGE))
    return false;
  char why[256];
  my_snprintf(why, sizeof why, ER_THD(current_thd, ER_ILLEGAL_HA_CREATE_OPTION), "TREFOIL", "ROW_TYPE");
  return misfit(ER_ILLEGAL_HA_CREATE_OPTION, why);
}

/* Tables lie in one directory, all of them. */
static void warn_directory(const char *path, const char *option)
{
  if (!path)
    return;
  THD *thd= current_thd;
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED,
                      ER_THD(thd, WARN_OPTION_IGNORED), option);
}

/* Keys lie beside their rows. As InnoDB has it this is error 1005, and a warning says why; of a partition it is ignored. */
static bool refuse_index_directory(const char *path, bool is_partition)
{
  THD *thd= current_thd;
  if (!path || is_partition || !wants_strict_options(thd))
  {
    warn_directory(path, "INDEX DIRECTORY");
    return false;
  }
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION,
                      ER_THD(thd, ER_ILLEGAL_HA_CREATE_OPTION), "TREFOIL", "INDEX DIRECTORY");
  return true;
}

static const LEX_CSTRING primary_key_name= {STRING_WITH_LEN("PRIMARY")};

/* The primary key has the rows anyway, and a hash orders nothing. */
static bool refuse_clustering(const KEY &key)
{
  const trefoil_key_options *own= key_options(&key);
  bool is_hash= key.algorithm == HA_KEY_ALG_LONG_HASH;
  if (!own || !own->clustering || (!is_hash && !is_same_name(key.name, primary_key_name)))
    return false;
  char why[NAME_LEN + 96];
  my_snprintf(why, sizeof why, "ENGINE=TREFOIL: CLUSTERING=1 is not for %s (`%s`)",
              is_hash ? "keys USING HASH" : "the primary key, which has the rows", key.name.str);
  return misfit(ER_ILLEGAL_HA_CREATE_OPTION, why);
}

bool refuse_options(const TABLE *table, const HA_CREATE_INFO *info)
{
  const TABLE_SHARE *share= table->s;
  warn_directory(info->data_file_name, "DATA DIRECTORY");
  if (refuse_index_directory(info->index_file_name, table->part_info) || refuse_row_format(info) ||
      refuse_settings(asked(table_options(share), nullptr)))
    return true;
  for (uint n= 0; n < share->keys; n++)
  {
    const KEY &key= table->key_info[n];
    const trefoil_key_options *own= key_options(&key);
    trefoil_key wanted= asked(nullptr, own);
    /* Its shape is one of the structure that it has, be that its own or the table's. */
    if (own && own->shape && !own->structure)
      wanted.structure= asked(table_options(share), own).structure;
    if (refuse_settings(wanted) || refuse_clustering(key))
      return true;
  }
  return false;
}

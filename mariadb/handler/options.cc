/* SPDX-License-Identifier: GPL-2.0-only */
#define ha_table_option_struct trefoil_table_options
#define ha_index_option_struct trefoil_key_options
#include "options.h"

/* 0 is "not said": a key then has what the table says. The other values are the table's, one further. */
#define STRUCTURES "default,auto,btree,betree,lsm"
#define COMPRESSIONS "default,none,lz4,zstd"

ha_create_table_option trefoil_key_option_list[]=
{
  HA_IOPTION_ENUM("STRUCTURE", structure, STRUCTURES, 0),
  HA_IOPTION_ENUM("COMPRESSION", compression, COMPRESSIONS, 0),
  HA_IOPTION_NUMBER("NODE_SIZE", node_size, 0, 0, 65536, 1),
  HA_IOPTION_BOOL("CLUSTERING", clustering, 0),
  HA_IOPTION_END
};

void settings(const trefoil_table_options *table, bool is_primary, const KEY *key, trefoil_key *to)
{
  static const uint8_t structures[]= {0, 0, 1, 2, 3};
  static const uint8_t compressions[]= {0, 1, 0, 2};
  const trefoil_key_options *own= reinterpret_cast<const trefoil_key_options *>(key->option_struct);
  uint structure= own ? own->structure : 0, compression= own ? own->compression : 0;
  ulonglong node_size= own ? own->node_size : 0;
  if (table)
  {
    structure= structure ? structure : table->structure + 1;
    compression= compression ? compression : table->compression + 1;
    node_size= node_size ? node_size : table->node_size;
  }
  to->structure= structures[structure];
  to->compression= compressions[compression];
  to->node_size= (uint32_t) node_size;
}

bool options_differ(const TABLE_SHARE *share, const HA_CREATE_INFO *info)
{
  const trefoil_table_options *old= table_options(share), *now= info->option_struct;
  if (!old || !now)
    return false;
  return old->structure != now->structure || old->compression != now->compression || old->node_size != now->node_size;
}

/* Rows have one format, which grows with them: that is what the others ask for. */
static bool refuse_row_format(const HA_CREATE_INFO *info)
{
  if (!(info->used_fields & HA_CREATE_USED_ROW_FORMAT) ||
      (info->row_type != ROW_TYPE_FIXED && info->row_type != ROW_TYPE_PAGE))
    return false;
  my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "TREFOIL", "ROW_TYPE");
  return true;
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

bool refuse_options(const TABLE *table, const HA_CREATE_INFO *info)
{
  warn_directory(info->data_file_name, "DATA DIRECTORY");
  warn_directory(info->index_file_name, "INDEX DIRECTORY");
  if (refuse_row_format(info))
    return true;
  for (uint n= 0; n < table->s->keys; n++)
  {
    const trefoil_key_options *own=
      reinterpret_cast<const trefoil_key_options *>(table->key_info[n].option_struct);
    if (own && own->clustering && n != table->s->primary_key)
    {
      my_printf_error(ER_UNSUPPORTED_EXTENSION, "ENGINE=TREFOIL does not support CLUSTERING=1 on key `%s` yet",
                      MYF(0), table->key_info[n].name.str);
      return true;
    }
  }
  return false;
}

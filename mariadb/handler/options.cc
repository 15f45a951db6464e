/* SPDX-License-Identifier: GPL-2.0-only */
#define ha_table_option_struct trefoil_table_options
#define ha_index_option_struct trefoil_key_options
#include "options.h"

/* 0 is "not said": a key then has what the table says, a table what the engine takes by itself. */
#define STRUCTURES "default,auto,btree,betree,lsm"
#define COMPRESSIONS "default,none,lz4,zstd"

ha_create_table_option trefoil_table_option_list[]=
{
  HA_TOPTION_ENUM("STRUCTURE", structure, STRUCTURES, 0),
  HA_TOPTION_ENUM("COMPRESSION", compression, COMPRESSIONS, 0),
  HA_TOPTION_NUMBER("NODE_SIZE", node_size, 0, 0, 65536, 1),
  HA_TOPTION_END
};

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
    structure= structure ? structure : table->structure;
    compression= compression ? compression : table->compression;
    node_size= node_size ? node_size : table->node_size;
  }
  to->structure= structures[structure];
  to->compression= compressions[compression];
  to->node_size= (uint32_t) node_size;
}

bool refuse_options(const TABLE *table)
{
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

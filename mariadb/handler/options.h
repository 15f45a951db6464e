/* SPDX-License-Identifier: GPL-2.0-only
   Options of tables and keys: STRUCTURE, SHAPE, COMPRESSION, NODE_SIZE, CLUSTERING. */
#ifndef TREFOIL_OPTIONS_H
#define TREFOIL_OPTIONS_H

#include "server.h"

struct trefoil_table_options
{
  uint structure;
  uint shape;
  uint compression;
  ulonglong node_size;
};

struct trefoil_key_options
{
  uint structure;
  uint shape;
  uint compression;
  ulonglong node_size;
  bool clustering;
};

extern ha_create_table_option trefoil_table_option_list[];
extern ha_create_table_option trefoil_key_option_list[];

inline const trefoil_table_options *table_options(const TABLE_SHARE *share)
{
  return reinterpret_cast<const trefoil_table_options *>(share->option_struct);
}

/* Settings of one key: its own, then those of the table; the default where the engine does not have them. */
void settings(const trefoil_table_options *table, const KEY *key, trefoil_key *to);

/* True if it was asked to have the whole row. */
bool is_clustering(const KEY &key);

bool options_differ(const TABLE_SHARE *share, const HA_CREATE_INFO *info);
/* True if one does not fit, after an error; a warning if they need not (trefoil_strict_options). */
bool refuse_options(const TABLE *table, const HA_CREATE_INFO *info);

#endif

/* SPDX-License-Identifier: GPL-2.0-only
   A table of the server as the engine takes it, and what of it the engine does not take yet. */
#ifndef TREFOIL_DEFINITION_H
#define TREFOIL_DEFINITION_H

#include <vector>

#include "server.h"

/* False for a generated column that the server makes whenever it is read. One in a key is kept as its key is. */
bool is_kept(const TABLE *table, const Field *field);

class Definition
{
public:
  explicit Definition(const TABLE *table);
  /* What it points to lives as long as this and the table. */
  const trefoil_definition *get() const { return &m_definition; }

private:
  std::vector<trefoil_field> m_fields;
  std::vector<trefoil_key> m_keys;
  std::vector<std::vector<trefoil_part>> m_parts;
  trefoil_definition m_definition;
};

/* True, with the server's error set, if the engine cannot keep the table. */
bool refuse_definition(const TABLE *table, const HA_CREATE_INFO *info);

#endif

/* SPDX-License-Identifier: GPL-2.0-only
   Foreign keys as statements say them, for the engine. */
#ifndef TREFOIL_FOREIGN_H
#define TREFOIL_FOREIGN_H

#include <list>
#include <string>
#include <vector>

#include "server.h"

class Foreign_change
{
public:
  /* `like`: a table whose place the new one takes, or null. */
  Foreign_change(THD *thd, const TABLE *table, const Alter_info *info, bool takes_place);
  const trefoil_foreign_change *get() const { return &m_change; }
  /* Why a cascade would write columns that what is generated and kept is made of; or null. `before`: whose foreign keys it has. */
  const char *writes_under_generated(const TABLE *table, trefoil_text before) const;
  /* A foreign key would be of, or to, a table with system versioning. `name`: whose foreign keys it has. */
  bool meets_versions(THD *thd, const TABLE *table, trefoil_text name) const;

private:
  struct Kept
  {
    const Foreign_change *change;
    bool any;
  };
  static void note_kept(void *to, const trefoil_foreign *one);
  void add(const TABLE *table, const Foreign_key &key);
  trefoil_text keep(const std::string &name);
  trefoil_text keep(const LEX_CSTRING &name) { return keep(std::string(name.str, name.length)); }

  trefoil_foreign_change m_change{};
  std::vector<trefoil_foreign> m_added;
  std::vector<trefoil_text> m_dropped;
  std::vector<trefoil_text> m_parents;
  std::list<std::vector<trefoil_text>> m_columns;
  std::list<std::string> m_names;
};

/* Says that there are none with versions; true. */
bool refuse_versions();
/* The table's name, as it is shown, in a name of the engine's. */
std::string label_of(trefoil_text path);
/* True for a table that is made by a copy of one that is changed. */
bool takes_place(const char *path);
/* A foreign key that cannot be as it is asked for: the server's error for it, with a warning that says why; 0 for others.
   `changes`: of a table that is changed. */
int foreign_error(THD *thd, const trefoil_failure &why, bool changes);
/* The foreign key that failed, in the words of error 1451 and 1452. */
void describe_foreign(const trefoil_failure &why, String *text);

#endif

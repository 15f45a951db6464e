/* SPDX-License-Identifier: GPL-2.0-only
   The server's headers, in the order that they need, and what all files of the handler share. */
#ifndef TREFOIL_SERVER_H
#define TREFOIL_SERVER_H

#include <my_global.h>

#include "sql_class.h"
#include "sql_priv.h"

#include "field.h"
#include "handler.h"
#include "key.h"
#include "log.h"
#include "rowid_filter.h"
#include "table.h"

#include "capi.h"

extern handlerton *trefoil_hton;
extern trefoil_database *trefoil_db;

inline trefoil_text text(const char *ptr, size_t length) { return {ptr, length}; }
inline trefoil_text text(const LEX_CSTRING &from) { return {from.str, from.length}; }

/* The name of a table in the engine: the server's path without its beginning. */
inline trefoil_text table_name(const char *path)
{
  if (path[0] == '.' && path[1] == '/')
    path+= 2;
  return {path, strlen(path)};
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only
   What differs between the versions of the server that the plugin is built for, 10.11 and 11.8, but for costs (costs.h). */
#ifndef TREFOIL_VERSIONS_H
#define TREFOIL_VERSIONS_H

#include "server.h"

/* A function of the handlerton. Servers before 11.8 tell most of them first which engine they mean. */
template <auto function> struct Called;
template <typename Result, typename... Arguments, Result (*function)(Arguments...)> struct Called<function>
{
#if MYSQL_VERSION_ID < 110800
  static Result by_server(handlerton *, Arguments... arguments) { return function(arguments...); }
#else
  static Result by_server(Arguments... arguments) { return function(arguments...); }
#endif
};

/* A name that the server has as characters alone, or with their length. */
inline const char *chars(const char *name) { return name; }
inline const char *chars(const LEX_CSTRING &name) { return name.str; }

/* Names of keys and the like. */
inline bool is_same_name(const LEX_CSTRING &a, const LEX_CSTRING &b)
{
  return !system_charset_info->strnncoll(a.str, a.length, b.str, b.length);
}

#endif

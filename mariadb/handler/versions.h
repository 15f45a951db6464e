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

/* Before 11.8 an engine says what SHOW INDEX calls a key; now the server does, which knows the keys that it hashes itself. */
#if MYSQL_VERSION_ID < 110800
#define TREFOIL_INDEX_TYPE const char *index_type(uint) override { return "BTREE"; }
#define CREATE_TYPELIB_FOR(names) {array_elements(names) - 1, "", names, NULL}
#else
#define TREFOIL_INDEX_TYPE
#endif

/* A name that the server has as characters alone, or with their length. */
inline const char *chars(const char *name) { return name; }
inline const char *chars(const LEX_CSTRING &name) { return name.str; }

/* Names of keys and the like. */
inline bool is_same_name(const LEX_CSTRING &a, const LEX_CSTRING &b) { return !system_charset_info->strnncoll(a.str, a.length, b.str, b.length); }

#endif

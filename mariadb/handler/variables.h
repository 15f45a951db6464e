/* SPDX-License-Identifier: GPL-2.0-only
   System variables. */
#ifndef TREFOIL_VARIABLES_H
#define TREFOIL_VARIABLES_H

#include "server.h"

extern struct st_mysql_sys_var *trefoil_variables[];

/* What the database is opened with. */
trefoil_options open_options(const char *directory);
uint8_t commit_durability();
/* The shorter of the engine's own limit and the server's, in milliseconds. */
uint64_t lock_wait_ms(THD *thd);
bool wants_snapshot_isolation(THD *thd);
/* Options that do not fit are errors. */
bool wants_strict_options(THD *thd);
bool wants_deadlocks_printed();
bool wants_read_free_apply();

/* backup.cc. */
void set_backup_dir(THD *thd, uint64_t rate, char **to, const char *directory);

/* SHOW STATUS and SHOW ENGINE STATUS: status.cc. */
extern SHOW_VAR trefoil_status[];
bool show_engine_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type what);

#endif

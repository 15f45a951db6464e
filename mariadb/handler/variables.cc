/* SPDX-License-Identifier: GPL-2.0-only */
#define ha_table_option_struct trefoil_table_options
#include "options.h"
#include "variables.h"
#include "versions.h"

#include "collations.h"
#include "errors.h"
#include "set_var.h"

static ulonglong buffer_size;
static ulonglong log_capacity;
static ulonglong disk_reserve;
static ulong checkpoint_replay_seconds;
static ulong flush_log_at_commit;
static ulong background_threads;

static MYSQL_SYSVAR_ULONGLONG(buffer_size, buffer_size, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "All memory of the engine: pages, uncommitted writes, locks, the log's buffer", NULL, NULL,
  512ULL << 20, 8ULL << 20, ULONGLONG_MAX, 1 << 20);

static MYSQL_SYSVAR_ULONGLONG(log_capacity, log_capacity, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Log kept before a checkpoint is forced", NULL, NULL, 1ULL << 30, 1ULL << 20, ULONGLONG_MAX, 1 << 20);

static MYSQL_SYSVAR_ULONGLONG(disk_reserve, disk_reserve, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Disk space kept for checkpoints, drops and commits in flight", NULL, NULL, 64ULL << 20, 0, ULONGLONG_MAX, 1 << 20);

static MYSQL_SYSVAR_ULONG(checkpoint_replay_seconds, checkpoint_replay_seconds,
  PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY, "Checkpoints keep the estimated replay after a crash below this", NULL,
  NULL, 30, 1, 86400, 0);

static MYSQL_SYSVAR_ULONG(flush_log_at_commit, flush_log_at_commit, PLUGIN_VAR_RQCMDARG,
  "What a commit waits for: 1 = it is on disk; 2 = the operating system has it; 0 = nothing, it is on disk within a "
  "second", NULL, NULL, 1, 0, 2, 0);

static MYSQL_SYSVAR_ULONG(background_threads, background_threads, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
  "Threads that write pages back, drain, merge and clean; 1 is 2. 0: one for two cores, 2 to 8", NULL, NULL,
  0, 0, 64, 0);

/* What may be set at any time. */
static my_bool deadlock_detect;
static ulonglong gc_debt_limit;
static ulonglong io_budget;

static trefoil_settings settings_now() { return {io_budget, gc_debt_limit, static_cast<uint8_t>(deadlock_detect), {}}; }

static void set_now()
{
  trefoil_settings settings= settings_now();
  trefoil_set(trefoil_db, &settings);
}

static void set_bool(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  *static_cast<my_bool *>(to)= *static_cast<const my_bool *>(from);
  set_now();
}

static void set_bytes(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  *static_cast<ulonglong *>(to)= *static_cast<const ulonglong *>(from);
  set_now();
}

static MYSQL_SYSVAR_ULONGLONG(io_budget, io_budget, PLUGIN_VAR_RQCMDARG,
  "Bytes that the background writes to the data file in a second; what somebody waits for is not held up. 0: no bound",
  NULL, set_bytes, 0, 0, ULONGLONG_MAX, 0);

static MYSQL_SYSVAR_ULONGLONG(gc_debt_limit, gc_debt_limit, PLUGIN_VAR_RQCMDARG,
  "Bytes of pages waiting for garbage collection from which on writers are slowed down. 0: a tenth of the data",
  NULL, set_bytes, 0, 0, ULONGLONG_MAX, 0);

static MYSQL_SYSVAR_BOOL(deadlock_detect, deadlock_detect, PLUGIN_VAR_OPCMDARG,
  "Transactions that wait for each other are found at once, and one of them is rolled back (error 1213). OFF: the first "
  "whose trefoil_lock_wait_timeout has passed gets error 1205", NULL, set_bool, TRUE);

static ulonglong backup_rate;
static MYSQL_SYSVAR_ULONGLONG(backup_rate, backup_rate, PLUGIN_VAR_RQCMDARG,
  "Bytes that a backup copies in a second, of backups that begin from now on. 0: as fast as it goes", NULL, NULL, 0, 0,
  ULONGLONG_MAX, 0);

static char *backup_dir;
static void update_backup_dir(THD *thd, struct st_mysql_sys_var *, void *to, const void *from)
{
  set_backup_dir(thd, backup_rate, static_cast<char **>(to), *static_cast<const char *const *>(from));
}

static MYSQL_SYSVAR_STR(backup_dir, backup_dir, PLUGIN_VAR_NOCMDOPT | PLUGIN_VAR_MEMALLOC,
  "SET GLOBAL makes a backup in this directory, which is new or empty, while everybody goes on, and returns when it is "
  "there. '/new SINCE /base': an increment to the backup in /base. The last one is shown", NULL, update_backup_dir, NULL);

static my_bool print_all_deadlocks;
static MYSQL_SYSVAR_BOOL(print_all_deadlocks, print_all_deadlocks, PLUGIN_VAR_OPCMDARG,
  "Each deadlock is written to the error log, as SHOW ENGINE TREFOIL STATUS shows the latest", NULL, NULL, FALSE);

static my_bool read_free_apply;
static MYSQL_SYSVAR_BOOL(read_free_apply, read_free_apply, PLUGIN_VAR_OPCMDARG,
  "A replica changes rows with a primary key without reading them first, where the log has them whole. Of a row that is not "
  "there, of a table with no other key, it does not notice that", NULL, NULL, FALSE);

static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
  "Longest wait for a row lock in seconds, of statements that begin from now on; a smaller lock_wait_timeout of the "
  "server counts, and one that is set for a statement alone, as by WAIT n", NULL, NULL, 50, 0, 1024 * 1024 * 1024, 0);

static MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
  "Under REPEATABLE READ a row that was changed after the snapshot is not written or locked: error 1020", NULL, NULL,
  FALSE);

static MYSQL_THDVAR_BOOL(strict_options, PLUGIN_VAR_OPCMDARG,
  "Options of tables and keys that the engine does not have are errors. OFF: they are warnings, and the default is taken. "
  "What the server does not know is left to its sql_mode", NULL, NULL, TRUE);

/* Options of tables that CREATE TABLE does not name. They are kept with the table. */
static const char *structures[]= {"auto", "btree", "betree", "lsm", NullS};
static const char *compressions[]= {"none", "lz4", "zstd", NullS};
static TYPELIB structure_names= CREATE_TYPELIB_FOR(structures);
static TYPELIB compression_names= CREATE_TYPELIB_FOR(compressions);

static MYSQL_THDVAR_ENUM(default_structure, PLUGIN_VAR_RQCMDARG, "STRUCTURE of new tables that do not say", NULL, NULL, 0,
  &structure_names);

static MYSQL_THDVAR_ENUM(default_compression, PLUGIN_VAR_RQCMDARG, "COMPRESSION of new tables that do not say", NULL,
  NULL, 1, &compression_names);

ha_create_table_option trefoil_table_option_list[]=
{
  HA_TOPTION_SYSVAR("STRUCTURE", structure, default_structure),
  HA_TOPTION_ENUM("SHAPE", shape, "default,lazy,leveled,universal", 0),
  HA_TOPTION_SYSVAR("COMPRESSION", compression, default_compression),
  HA_TOPTION_NUMBER("NODE_SIZE", node_size, 0, 0, 65536, 1),
  HA_TOPTION_END
};

struct st_mysql_sys_var *trefoil_variables[]=
{
  MYSQL_SYSVAR(buffer_size),
  MYSQL_SYSVAR(log_capacity),
  MYSQL_SYSVAR(disk_reserve),
  MYSQL_SYSVAR(checkpoint_replay_seconds),
  MYSQL_SYSVAR(flush_log_at_commit),
  MYSQL_SYSVAR(lock_wait_timeout),
  MYSQL_SYSVAR(snapshot_isolation),
  MYSQL_SYSVAR(background_threads),
  MYSQL_SYSVAR(backup_dir),
  MYSQL_SYSVAR(backup_rate),
  MYSQL_SYSVAR(io_budget),
  MYSQL_SYSVAR(gc_debt_limit),
  MYSQL_SYSVAR(deadlock_detect),
  MYSQL_SYSVAR(print_all_deadlocks),
  MYSQL_SYSVAR(read_free_apply),
  MYSQL_SYSVAR(strict_options),
  MYSQL_SYSVAR(default_structure),
  MYSQL_SYSVAR(default_compression),
  NULL
};

trefoil_options open_options(const char *directory)
{
  return {text(directory, strlen(directory)), buffer_size, log_capacity, disk_reserve, checkpoint_replay_seconds,
          server_collations, background_threads == 1 ? 2 : background_threads, settings_now(), log_refusal};
}

uint8_t commit_durability()
{
  switch (flush_log_at_commit) {
  case 0:
    return TREFOIL_BUFFERED;
  case 2:
    return TREFOIL_WRITE;
  default:
    return TREFOIL_SYNC;
  }
}

/* WAIT n and NOWAIT, which set this for their statement, and SET STATEMENT. */
static bool says_how_long(THD *thd)
{
  List_iterator_fast<set_var_base> all(thd->lex->stmt_var_list);
  while (set_var_base *one= all++)
    if (one->is_system() && !strcmp(static_cast<set_var *>(one)->var->name.str, "lock_wait_timeout"))
      return true;
  return false;
}

uint64_t lock_wait_ms(THD *thd)
{
  if (says_how_long(thd))
    return 1000ULL * thd->variables.lock_wait_timeout;
  return 1000ULL * MY_MIN(THDVAR(thd, lock_wait_timeout), (ulong) thd->variables.lock_wait_timeout);
}

bool wants_snapshot_isolation(THD *thd) { return THDVAR(thd, snapshot_isolation); }

bool wants_strict_options(THD *thd) { return THDVAR(thd, strict_options); }

bool wants_deadlocks_printed() { return print_all_deadlocks; }

bool wants_read_free_apply() { return read_free_apply; }

/* SPDX-License-Identifier: GPL-2.0-only
   The plugin: it opens the one database when the server starts and closes it when the server ends. */
#include <signal.h>

#include "errors.h"
#include "ha_trefoil.h"
#include "information.h"
#include "options.h"
#include "transaction.h"
#include "variables.h"

#include <mysql/plugin.h>

handlerton *trefoil_hton;
trefoil_database *trefoil_db;

/* A directory of this name is not shown as a database. */
extern bool ignore_db_dirs_append(const char *name);
static const char directory_name[]= "trefoil";

/* What a killed server was changing is finished, or undone, and logged. */
static bool is_ddl_recovered;

/* The server logs the changes that it finishes without saying that they are some (10.11, 11.8: only statements of clients are marked). A
   replica that applies in parallel would let what comes behind one go on beside it, and wait for ever: the change for their
   locks of the table, they for it to commit. It asks for a handler of no table before each of them. */
static handler *create_handler(handlerton *hton, TABLE_SHARE *table, MEM_ROOT *root)
{
  THD *thd= current_thd;
  if (!is_ddl_recovered && !table && thd)
    thd->transaction->stmt.mark_trans_did_ddl();
  return new (root) ha_trefoil(hton, table);
}

/* That it is not there is an error which the server knows: recovery of a DROP goes on behind it. */
static int drop_table(handlerton *, const char *path)
{
  trefoil_failure why{};
  THD *thd= current_thd;
  trefoil_patience wait= thd ? patience_of(thd) : trefoil_patience{};
  return trefoil_table_drop(trefoil_db, table_name(path), session_of_drop(thd), thd ? &wait : nullptr, &why) ?
         end_error(nullptr, why) : 0;
}

/* What the server knew of is gone by then: what it did not know of remains. */
static void drop_database(handlerton *, char *path)
{
  trefoil_failure why{};
  trefoil_patience wait= patience_of(current_thd);
  if (trefoil_tables_drop(trefoil_db, table_name(path), &wait, &why))
    log_failure("DROP DATABASE", why);
}

/* Asked after a crash within ALTER TABLE: 0 if the engine's table has the new definition. */
static int check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong before)
{
  trefoil_failure why{};
  uint64_t id= 0;
  if (trefoil_definition_id(trefoil_db, table_name(path), &id, &why))
    return 1;
  return id == before;
}

/* What is prepared is decided by now, unless a user has to decide it: a table that waits for that is left. */
static int ddl_recovery_done(handlerton *)
{
  is_ddl_recovered= true;
  trefoil_failure why{};
  if (trefoil_leftovers_drop(trefoil_db, &why))
    log_failure("temporary tables left behind", why);
  return 0;
}

/* Signals are the server's: threads that the engine starts are born with all of them blocked. */
class Without_signals
{
public:
  Without_signals()
  {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &m_before);
  }
  ~Without_signals() { pthread_sigmask(SIG_SETMASK, &m_before, nullptr); }

private:
  sigset_t m_before;
};

static int init(void *plugin)
{
  handlerton *hton= static_cast<handlerton *>(plugin);
  static const char *no_files[]= {NullS};
  char directory[FN_REFLEN];
  /* The server's path ends with a slash. */
  my_snprintf(directory, sizeof directory, "%s%s", mysql_real_data_home, directory_name);
  trefoil_options options= open_options(directory);
  trefoil_failure why{};
  {
    Without_signals blocked;
    if (trefoil_open(&options, &trefoil_db, &why))
    {
      log_failure("the engine does not start", why);
      sql_print_error("TREFOIL: the server goes on without it: its tables cannot be opened, nothing of them is changed; mend "
                      "what is named above and restart the server, or put a backup in the place of %s", directory);
      return 1;
    }
  }
  report_waits();
  ignore_db_dirs_append(directory_name);
  trefoil_hton= hton;
  hton->create= create_handler;
  hton->flags= HTON_SUPPORTS_EXTENDED_KEYS | HTON_SUPPORTS_FOREIGN_KEYS;
  hton->tablefile_extensions= no_files;
  hton->drop_table= drop_table;
  hton->drop_database= drop_database;
  hton->check_version= check_version;
  hton->signal_ddl_recovery_done= ddl_recovery_done;
  hton->table_options= trefoil_table_option_list;
  hton->index_options= trefoil_key_option_list;
  set_transaction_functions(hton);
  set_two_phase_functions(hton);
  ha_trefoil::set_costs(hton);
  hton->show_status= show_engine_status;
  open_views(true);
  return 0;
}

static int deinit(void *)
{
  open_views(false);
  trefoil_close(trefoil_db);
  trefoil_db= nullptr;
  return 0;
}

static struct st_mysql_storage_engine engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};

static struct st_mysql_information_schema view= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

#define VIEW(name, what) \
  {MYSQL_INFORMATION_SCHEMA_PLUGIN, &view, name, "The Trefoil project", what, PLUGIN_LICENSE_GPL, make_view, nullptr, \
   0x0001, nullptr, nullptr, "0.1", MariaDB_PLUGIN_MATURITY_EXPERIMENTAL}

maria_declare_plugin(trefoil)
{
  MYSQL_STORAGE_ENGINE_PLUGIN,
  &engine,
  "TREFOIL",
  "The Trefoil project",
  "Transactional engine whose index structure is chosen per index",
  PLUGIN_LICENSE_GPL,
  init,
  deinit,
  0x0001,
  trefoil_status,
  trefoil_variables,
  "0.1",
  MariaDB_PLUGIN_MATURITY_EXPERIMENTAL
},
VIEW("TREFOIL_TRX", "Transactions that run or are prepared"),
VIEW("TREFOIL_LOCKS", "Rows and ranges that are locked"),
VIEW("TREFOIL_LOCK_WAITS", "Who waits for whom"),
VIEW("TREFOIL_DEADLOCKS", "The latest deadlocks"),
VIEW("TREFOIL_INDEXES", "Keys: settings, sizes, what they cost"),
VIEW("TREFOIL_ADVICE", "What the other structure would cost"),
VIEW("TREFOIL_LEVELS", "Levels of log-structured merge trees"),
VIEW("TREFOIL_IO", "Bytes written and read, by cause"),
VIEW("TREFOIL_STALLS", "Waits, by reason"),
VIEW("TREFOIL_GC", "Old versions, and who keeps them")
maria_declare_plugin_end;

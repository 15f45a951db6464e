/* SPDX-License-Identifier: GPL-2.0-only
   The server's calls at the ends of statements and transactions. A call with `all` unset ends the transaction only if
   there is none around the statement. */
#include "transaction.h"

#include "errors.h"
#include "variables.h"
#include "versions.h"

bool is_in_transaction(THD *thd)
{
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

Connection *connection(THD *thd)
{
  return static_cast<Connection *>(thd_get_ha_data(thd, trefoil_hton));
}

trefoil_session *session_of_drop(THD *thd)
{
  Connection *at= thd ? connection(thd) : nullptr;
  return at ? at->session : nullptr;
}

/* Whether the client is there, only the connection's own thread can see. */
static int is_wanted(void *of)
{
  THD *thd= static_cast<THD *>(of);
  return !thd_killed(thd) && (thd != current_thd || thd_is_connected(thd));
}

trefoil_patience patience_of(THD *thd)
{
  uint8_t unchecked= thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS) != 0;
  uint8_t drops_database= thd_sql_command(thd) == SQLCOM_DROP_DB;
  return {lock_wait_ms(thd), is_wanted, thd, unchecked, drops_database, {}};
}

/* A copy of a table keeps what it had: only foreign keys that it gets have its rows looked at. */
static bool copies_a_table(THD *thd)
{
  switch (thd_sql_command(thd)) {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    return !(thd->lex->alter_info.flags & ALTER_ADD_FOREIGN_KEY);
  default:
    return false;
  }
}

static int connect(THD *thd, Connection **out)
{
  *out= connection(thd);
  if (*out)
    return 0;
  trefoil_failure why{};
  Connection *made= new Connection{};
  if (trefoil_session_open(trefoil_db, thd->thread_id, thd, &made->session, &made->canceller, &why))
  {
    delete made;
    return server_error(thd, why);
  }
  thd_set_ha_data(thd, trefoil_hton, made);
  *out= made;
  return 0;
}

static uint8_t isolation(THD *thd)
{
  /* The one statement of its transaction has nothing that it would have to repeat. */
  int wanted= thd_tx_isolation(thd);
  return (uint8_t) (wanted == ISO_SERIALIZABLE && !is_in_transaction(thd) ? (int) ISO_REPEATABLE_READ : wanted);
}

int begin_statement(THD *thd, Connection **out)
{
  if (int error= connect(thd, out))
    return error;
  trefoil_begin_options options{};
  options.isolation= isolation(thd);
  options.snapshot_isolation= wants_snapshot_isolation(thd);
  options.unchecked_foreign_keys= thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS) || copies_a_table(thd);
  options.lock_timeout_ms= lock_wait_ms(thd);
  trefoil_failure why{};
  if (trefoil_statement((*out)->session, &options, &why))
    return server_error(thd, why);
  /* Whoever ended it before did that to the statement before. */
  if (thd_killed(thd))
    trefoil_cancel((*out)->canceller);
  trans_register_ha(thd, false, trefoil_hton, 0);
  if (is_in_transaction(thd))
    trans_register_ha(thd, true, trefoil_hton, 0);
  return 0;
}

static int commit(THD *thd, bool all)
{
  Connection *at= connection(thd);
  if (!at)
    return 0;
  if (!all && is_in_transaction(thd))
  {
    trefoil_statement_end(at->session);
    return 0;
  }
  trefoil_failure why{};
  uint8_t durability= at->is_logged ? (uint8_t) TREFOIL_BUFFERED : commit_durability();
  /* With the binary log the server orders nothing that does not go there. */
  if (at->is_to_be_ordered)
    warn_of_other_engines();
  at->is_to_be_ordered= at->is_logged= false;
  if (!trefoil_commit(at->session, durability, &why))
    return 0;
  log_failure("commit", why);
  return end_error(thd, why);
}

static int rollback(THD *thd, bool all)
{
  Connection *at= connection(thd);
  if (!at)
    return 0;
  trefoil_failure why{};
  bool is_end= all || !is_in_transaction(thd);
  at->is_to_be_ordered= at->is_logged= false;
  if (!(is_end ? trefoil_rollback(at->session, &why) : trefoil_statement_undo(at->session, &why)))
    return 0;
  log_failure("rollback", why);
  return server_error(thd, why);
}

static int connection_ends(THD *thd)
{
  Connection *at= connection(thd);
  /* Whoever kills it looks for it under the lock that this takes. */
  thd_set_ha_data(thd, trefoil_hton, nullptr);
  if (at)
    trefoil_session_close(at->session, at->canceller);
  delete at;
  return 0;
}

/* Called by another thread, which holds the connection. */
static void kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  if (const Connection *at= connection(thd))
    trefoil_cancel(at->canceller);
}

static uint64_t *number_at(void *place) { return static_cast<uint64_t *>(place); }

static int savepoint_set(THD *thd, void *place)
{
  Connection *at= connection(thd);
  trefoil_failure why{};
  return at && trefoil_savepoint(at->session, number_at(place), &why) ? server_error(thd, why) : 0;
}

static int savepoint_rollback(THD *thd, void *place)
{
  Connection *at= connection(thd);
  trefoil_failure why{};
  return at && trefoil_savepoint_undo(at->session, *number_at(place), &why) ? server_error(thd, why) : 0;
}

static int savepoint_release(THD *thd, void *place)
{
  if (Connection *at= connection(thd))
    trefoil_savepoint_release(at->session, *number_at(place));
  return 0;
}

/* Otherwise the definitions of tables used since stay as they are until the end of the transaction. */
static bool can_give_definitions_back(THD *thd)
{
  Connection *at= connection(thd);
  return !at || trefoil_holds_nothing(at->session);
}

static bool flush_logs(handlerton *)
{
  trefoil_failure why{};
  if (!trefoil_sync(trefoil_db, &why))
    return false;
  log_failure("flush of the log", why);
  return true;
}

void set_transaction_functions(handlerton *hton)
{
  hton->savepoint_offset= sizeof(uint64_t);
  hton->commit= Called<commit>::by_server;
  hton->rollback= Called<rollback>::by_server;
  hton->close_connection= Called<connection_ends>::by_server;
  hton->kill_query= kill_query;
  hton->savepoint_set= Called<savepoint_set>::by_server;
  hton->savepoint_rollback= Called<savepoint_rollback>::by_server;
  hton->savepoint_rollback_can_release_mdl= Called<can_give_definitions_back>::by_server;
  hton->savepoint_release= Called<savepoint_release>::by_server;
  hton->flush_logs= flush_logs;
}

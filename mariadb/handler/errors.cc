/* SPDX-License-Identifier: GPL-2.0-only */
#include "errors.h"
#include "variables.h"

static void log_deadlock()
{
  char text[4096];
  size_t length= trefoil_latest_deadlock(trefoil_db, text, sizeof text);
  sql_print_information("TREFOIL: deadlock\n%.*s", (int) length, text);
}

int server_error(THD *thd, const trefoil_failure &why)
{
  switch (why.code) {
  case TREFOIL_OK: return 0;
  case TREFOIL_END: return HA_ERR_END_OF_FILE;
  case TREFOIL_NOT_FOUND: return HA_ERR_KEY_NOT_FOUND;
  case TREFOIL_DUPLICATE: return HA_ERR_FOUND_DUPP_KEY;
  case TREFOIL_DEADLOCK:
    if (thd)
      thd->mark_transaction_to_rollback(true);
    if (wants_deadlocks_printed())
      log_deadlock();
    return HA_ERR_LOCK_DEADLOCK;
  case TREFOIL_LOCK_TIMEOUT:
    if (thd)
      thd->mark_transaction_to_rollback(false);
    return HA_ERR_LOCK_WAIT_TIMEOUT;
  case TREFOIL_CANCELLED: return HA_ERR_ABORTED_BY_USER;
  case TREFOIL_CHANGED:
    /* As with InnoDB: what it has done came of a snapshot that others have overtaken, and whoever tries again begins anew. */
    if (thd)
      thd->mark_transaction_to_rollback(true);
    return HA_ERR_RECORD_CHANGED;
  case TREFOIL_FULL:
    log_failure("a statement is refused", why);
    return HA_ERR_DISK_FULL;
  case TREFOIL_NO_TABLE: return HA_ERR_NO_SUCH_TABLE;
  case TREFOIL_TABLE_EXISTS: return HA_ERR_TABLE_EXIST;
  case TREFOIL_NO_PARENT: return HA_ERR_NO_REFERENCED_ROW;
  case TREFOIL_HAS_CHILDREN:
  case TREFOIL_REFERENCED: return HA_ERR_ROW_IS_REFERENCED;
  case TREFOIL_TOO_DEEP: return HA_ERR_FK_DEPTH_EXCEEDED;
  case TREFOIL_FOREIGN_REFUSED: return HA_ERR_CANNOT_ADD_FOREIGN;
  case TREFOIL_FOREIGN_DUPLICATE: return HA_ERR_FOREIGN_DUPLICATE_KEY;
  case TREFOIL_DEFINITION:
    log_failure("table definition", why);
    [[fallthrough]];
  case TREFOIL_BESIDE: return HA_ERR_TABLE_DEF_CHANGED;
  case TREFOIL_CORRUPT:
  case TREFOIL_SET_ASIDE:
    log_failure("damage", why);
    return HA_ERR_CRASHED;
  case TREFOIL_PANIC:
    log_failure("a bug; writes are refused from now on", why);
    [[fallthrough]];
  default:
    return TREFOIL_ERR_TEXT + why.code;
  }
}

int end_error(THD *thd, const trefoil_failure &why)
{
  int error= server_error(thd, why);
  if (why.code == TREFOIL_FULL)
    my_error(ER_DISK_FULL, MYF(0), "TREFOIL", HA_ERR_DISK_FULL);
  else if (why.code == TREFOIL_READ_ONLY || why.code == TREFOIL_UNKNOWN_OUTCOME)
    my_error(ER_GET_ERRMSG, MYF(0), error, why.text, "TREFOIL");
  return error;
}

void log_failure(const char *what, const trefoil_failure &why)
{
  if (const char *remedy= trefoil_line_due(why.code))
    sql_print_error("TREFOIL: %s: %s%s", what, why.text, remedy);
}

void log_refusal(trefoil_text line) { sql_print_error("TREFOIL: %.*s", (int) line.len, line.ptr); }

/* SPDX-License-Identifier: GPL-2.0-only
   Two-phase commit: with the binary log, with other engines, by users (XA). What a user prepares is on
   disk when it returns; what the server will order is as durable as trefoil_flush_log_at_commit says. The server
   writes its log, then gives each commit its place (commit_ordered, under its own lock, in any thread), then lets it
   finish. That is not synced again if it is in the binary log, by which the server decides what it finds prepared after a
   crash. Without that it is: what the server keeps instead (tc.log) it does not look at, and rolls everything back
   (read in xarecover_handlerton of 10.11.18). */
#include <atomic>

#include "errors.h"
#include "transaction.h"
#include "variables.h"
#include "versions.h"

/* In the server for engines, and in none of its headers. */
void mysql_bin_log_commit_pos(THD *thd, ulonglong *out_pos, const char **out_file);

/* Answers of X/Open's XA. */
enum { XA_OK= 0, XAER_RMERR= -3, XAER_NOTA= -4 };

static trefoil_xid name_of(const XID *xid)
{
  trefoil_xid name{};
  int4store(name.bytes, (int32) xid->formatID);
  name.bytes[4]= (uint8_t) xid->gtrid_length;
  name.bytes[5]= (uint8_t) xid->bqual_length;
  size_t length= (size_t) (xid->gtrid_length + xid->bqual_length);
  memcpy(name.bytes + 6, xid->data, length);
  name.length= (uint32_t) (6 + length);
  return name;
}

/* False for a name that no server has given. */
static bool xid_of(const trefoil_xid &name, XID *xid)
{
  if (name.length < 6 || name.length != 6u + name.bytes[4] + name.bytes[5] || name.length > 6 + XIDDATASIZE)
    return false;
  xid->set((long) sint4korr(name.bytes), (const char *) name.bytes + 6, name.bytes[4],
           (const char *) name.bytes + 6 + name.bytes[4], name.bytes[5]);
  return true;
}

/* Where the binary log has the transaction that is being committed; otherwise as it was before. */
static ulonglong place_in_binlog(THD *thd)
{
  const char *file= nullptr;
  ulonglong place= 0;
  mysql_bin_log_commit_pos(thd, &place, &file);
  return file && *file ? place : 0;
}

void warn_of_other_engines()
{
  static std::atomic<bool> is_said{false};
  if (!is_said.exchange(true))
    sql_print_warning("TREFOIL: a transaction of several storage engines is not in the binary log; after a crash this server "
                      "rolls back what it finds prepared in them. To keep them the same, use --log-bin.");
}

static int prepare(THD *thd, bool all)
{
  Connection *at= connection(thd);
  if (!at)
    return 0;
  if (!all && is_in_transaction(thd))
  {
    trefoil_statement_end(at->session);
    return 0;
  }
  XID xid;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&xid));
  trefoil_xid name= name_of(&xid);
  bool is_users= thd->transaction->xid_state.is_explicit_XA();
  at->is_to_be_ordered= !is_users;
  at->place_before= place_in_binlog(thd);
  trefoil_failure why{};
  /* What a user prepares is on disk: its coordinator may be on another machine. */
  uint8_t durability= is_users ? (uint8_t) TREFOIL_SYNC : commit_durability();
  return trefoil_prepare(at->session, &name, !is_users, durability, &why) ? end_error(thd, why) : 0;
}

static void commit_ordered(THD *thd, bool)
{
  Connection *at= connection(thd);
  if (!at || !at->is_to_be_ordered)
    return;
  ulonglong place= place_in_binlog(thd);
  at->is_logged= place && place != at->place_before;
  if (!at->is_logged)
    warn_of_other_engines();
  at->is_to_be_ordered= false;
  trefoil_order(at->session);
}

/* Called until fewer come than there is room for. */
static int recover(XID *list, uint room)
{
  static uint32_t told= 0;
  uint count= 0;
  trefoil_xid name;
  while (count < room && trefoil_prepared(trefoil_db, told, &name, 1))
  {
    told++;
    if (xid_of(name, &list[count]))
      count++;
  }
  if (count < room)
    told= 0;
  return (int) count;
}

static int decide(XID *xid, bool commit)
{
  trefoil_xid name= name_of(xid);
  trefoil_failure why{};
  switch (trefoil_decide(trefoil_db, &name, commit, &why)) {
  case TREFOIL_OK: return XA_OK;
  case TREFOIL_NO_XID: return XAER_NOTA;
  default:
    log_failure("decision of a prepared transaction", why);
    return XAER_RMERR;
  }
}

static int commit_by_xid(XID *xid) { return decide(xid, true); }
static int rollback_by_xid(XID *xid) { return decide(xid, false); }

/* The server may forget the log that holds these commits: they have to be on disk here. */
static void commit_checkpoint_request(void *cookie)
{
  trefoil_failure why{};
  if (trefoil_checkpoint(trefoil_db, &why))
    log_failure("sync of the log", why); /* and the server keeps its own */
  else
    commit_checkpoint_notify_ha(cookie);
}

static int start_consistent_snapshot(THD *thd)
{
  Connection *at= nullptr;
  if (int error= begin_statement(thd, &at))
    return error;
  trefoil_failure why{};
  return trefoil_snapshot(at->session, &why) ? server_error(thd, why) : 0;
}

void set_two_phase_functions(handlerton *hton)
{
  hton->prepare= Called<prepare>::by_server;
  hton->commit_ordered= Called<commit_ordered>::by_server;
  hton->recover= Called<recover>::by_server;
  hton->commit_by_xid= Called<commit_by_xid>::by_server;
  hton->rollback_by_xid= Called<rollback_by_xid>::by_server;
  hton->commit_checkpoint_request= commit_checkpoint_request;
  hton->start_consistent_snapshot= Called<start_consistent_snapshot>::by_server;
}

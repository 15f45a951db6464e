/* SPDX-License-Identifier: GPL-2.0-only
   Waits for row locks, as the server hears of them, from the thread that waits:
   - the thread pool runs another of its threads meanwhile;
   - the binary log marks a transaction that has waited: a replica does not apply it beside those before it on trial;
   - of two transactions that a replica applies at once the earlier one commits first. If it waits for a row that the later
     one has locked, the server ends the later one and applies it again.
   No lock of the engine is held then, and who is in the way does not end before the server has looked at him (capi.h). */
#include "transaction.h"

#include "rpl_rli.h"

/* In the server for engines, and in none of its headers. */
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other);
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);

/* Whoever takes a lock that is shared ahead of one who waits for it wakes nobody, and is found when they are looked at again. */
static const uint32_t again_ms= 20;
/* Told at first alone. */
static const uint32_t once= UINT32_MAX;

static bool applies_in_parallel(THD *thd) { return thd->rgi_slave && thd->rgi_slave->is_parallel_exec; }

static uint32_t wait_begins(THD *thd)
{
  thd_wait_begin(nullptr, THD_WAIT_ROW_LOCK);
  if (!thd || !thd_need_wait_reports(thd))
    return 0;
  thd_rpl_deadlock_check(thd, nullptr);
  if (applies_in_parallel(thd))
    return again_ms;
  /* A group of commits that waits for more of them goes on if one of it is waited for. */
  return opt_binlog_commit_wait_count ? once : 0;
}

static uint32_t report_wait(uint8_t what, void *connection)
{
  switch (what) {
  case TREFOIL_WAIT_BEGINS: return wait_begins(current_thd);
  case TREFOIL_WAIT_BLOCKED:
    thd_rpl_deadlock_check(current_thd, static_cast<THD *>(connection));
    return 0;
  default:
    thd_wait_end(nullptr);
    return 0;
  }
}

void report_waits() { trefoil_report_waits(trefoil_db, report_wait); }

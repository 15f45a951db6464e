/* SPDX-License-Identifier: GPL-2.0-only
   Statements, and how the rows that they read are locked. */
#include "errors.h"
#include "ha_trefoil.h"

/* Tables are not locked by the server: rows are, and definitions by its metadata locks. */
THR_LOCK_DATA **ha_trefoil::store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type == TL_IGNORE)
    return to;
  m_lock= {TREFOIL_UNLOCKED, TREFOIL_WAIT};
  if (type >= TL_WRITE_ALLOW_WRITE)
    m_lock.mode= TREFOIL_EXCLUSIVE;
  else if (type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED)
    m_lock.mode= TREFOIL_SHARED;
  /* What a statement copies from, where the log repeats statements. */
  else if (type == TL_READ_NO_INSERT && thd_tx_isolation(thd) >= ISO_REPEATABLE_READ &&
           thd_sql_command(thd) != SQLCOM_SELECT)
    m_lock.mode= TREFOIL_SHARED;
  if (type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED)
    m_lock.wait= TREFOIL_SKIP_LOCKED;
  else if (thd->variables.lock_wait_timeout == 0)
    m_lock.wait= TREFOIL_NO_WAIT;
  return to;
}

int ha_trefoil::attach(THD *thd)
{
  Connection *at= nullptr;
  if (int error= begin_statement(thd, &at))
    return error;
  m_session= at->session;
  return 0;
}

int ha_trefoil::external_lock(THD *thd, int type)
{
  if (type != F_UNLCK)
    return attach(thd);
  m_session= nullptr;
  return 0;
}

int ha_trefoil::start_stmt(THD *thd, thr_lock_type type)
{
  THR_LOCK_DATA *none= nullptr;
  store_lock(thd, &none, type);
  return attach(thd);
}

void ha_trefoil::unlock_row()
{
  if (m_session && m_lock.mode != TREFOIL_UNLOCKED)
    trefoil_unlock_row(m_session);
}

int ha_trefoil::reset()
{
  trefoil_cursor_reset(m_cursor);
  return 0;
}

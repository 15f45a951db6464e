/* SPDX-License-Identifier: GPL-2.0-only
   Statements, and how the rows that they read are locked. */
#include "errors.h"
#include "ha_trefoil.h"
#include "variables.h"

/* What a statement reads to change something is locked, as users know it from InnoDB: what others repeat from the log, or
   the reader relies on, does not change before its end. Under READ COMMITTED not, where the statement copies. */
static bool locks_what_it_reads(THD *thd, thr_lock_type type)
{
  switch (thd_sql_command(thd)) {
  case SQLCOM_SELECT:
  case SQLCOM_HA_OPEN:
  case SQLCOM_HA_READ:
  case SQLCOM_LOCK_TABLES:
  case SQLCOM_CHECKSUM:
  case SQLCOM_CHECK:
  case SQLCOM_ANALYZE:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_CREATE_SEQUENCE:
    return false;
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_UPDATE:
  case SQLCOM_CREATE_TABLE:
    return thd_tx_isolation(thd) > ISO_READ_COMMITTED;
  default:
    return type == TL_READ || type == TL_READ_NO_INSERT;
  }
}

/* Tables are not locked by the server: rows are, and definitions by its metadata locks. */
THR_LOCK_DATA **ha_trefoil::store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type == TL_IGNORE)
    return to;
  m_lock= {TREFOIL_UNLOCKED, TREFOIL_WAIT};
  if (type >= TL_WRITE_ALLOW_WRITE)
    m_lock.mode= TREFOIL_EXCLUSIVE;
  else if (type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED || locks_what_it_reads(thd, type))
    m_lock.mode= TREFOIL_SHARED;
  if (type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED)
    m_lock.wait= TREFOIL_SKIP_LOCKED;
  else if (thd->variables.lock_wait_timeout == 0)
    m_lock.wait= TREFOIL_NO_WAIT;
  m_stored_lock= m_lock;
  return to;
}

int ha_trefoil::attach(THD *thd)
{
  if (table->s->table_type == TABLE_TYPE_SEQUENCE)
    return attach_sequence();
  Connection *at= nullptr;
  if (int error= begin_statement(thd, &at))
    return error;
  m_session= at->session;
  /* It may be another one by now, of the same name. */
  trefoil_cursor_attach(m_cursor, m_table);
  return 0;
}

/* Nothing is locked between its calls: the server has a lock around each change. */
int ha_trefoil::attach_sequence()
{
  trefoil_begin_options options{};
  options.isolation= ISO_READ_COMMITTED;
  options.lock_timeout_ms= lock_wait_ms(ha_thd());
  m_lock= {TREFOIL_UNLOCKED, TREFOIL_WAIT};
  trefoil_cursor_attach(m_cursor, m_table);
  if (!m_own_session && trefoil_session_open(trefoil_db, 0, nullptr, &m_own_session, &m_own_canceller, &m_why))
    return failed();
  m_session= m_own_session;
  return trefoil_statement(m_session, &options, &m_why) ? failed() : 0;
}

/* A later commit that is synced makes this one durable: nothing that used a number outlives the number. */
int ha_trefoil::settle(int error)
{
  if (m_session != m_own_session)
    return error;
  int ended= error ? trefoil_rollback(m_session, &m_why) : trefoil_commit(m_session, TREFOIL_BUFFERED, &m_why);
  error= error ? error : ended ? failed() : 0;
  int begun= attach_sequence();
  return error ? error : begun;
}

int ha_trefoil::external_lock(THD *thd, int type)
{
  if (type != F_UNLCK)
    return attach(thd);
  if (m_session && m_session == m_own_session)
    trefoil_rollback(m_session, &m_why);
  m_session= nullptr;
  return 0;
}

/* A statement on a table that is locked: under LOCK TABLES, or within a function or trigger, where what the statement outside
   does has decided how its tables are read. */
int ha_trefoil::start_stmt(THD *thd, thr_lock_type type)
{
  m_lock= m_stored_lock;
  if (thd_sql_command(thd) == SQLCOM_SELECT && type == TL_READ)
    m_lock.mode= TREFOIL_UNLOCKED;
  else if (type >= TL_WRITE_ALLOW_WRITE)
    m_lock.mode= TREFOIL_EXCLUSIVE;
  else if (type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED)
    m_lock.mode= TREFOIL_SHARED;
  if (type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED)
    m_lock.wait= TREFOIL_SKIP_LOCKED;
  return attach(thd);
}

void ha_trefoil::unlock_row()
{
  if (m_session && m_lock.mode != TREFOIL_UNLOCKED)
    trefoil_unlock_row(m_session, m_cursor);
}

/* At READ COMMITTED an UPDATE looks at what is committed before it waits for the row. */
void ha_trefoil::try_semi_consistent_read(bool is_wanted)
{
  m_shows_locked= is_wanted && thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED;
}

int ha_trefoil::reset()
{
  m_shows_locked= m_is_unread= false;
  m_given= 0;
  trefoil_cursor_reset(m_cursor);
  return 0;
}

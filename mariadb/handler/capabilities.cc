/* SPDX-License-Identifier: GPL-2.0-only
   What the engine can do. */
#include "errors.h"
#include "foreign.h"
#include "ha_trefoil.h"

ulonglong ha_trefoil::table_flags() const
{
  ulonglong flags= HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_PRIMARY_KEY_IN_READ_INDEX |
                   HA_PRIMARY_KEY_REQUIRED_FOR_POSITION | HA_TABLE_SCAN_ON_INDEX | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE |
                   HA_CAN_SQL_HANDLER | HA_BINLOG_ROW_CAPABLE | HA_BINLOG_STMT_CAPABLE | HA_CRASH_SAFE |
                   HA_CAN_SKIP_LOCKED | HA_CAN_VIRTUAL_COLUMNS | HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_GEOMETRY | HA_CAN_REPAIR;
  /* What a backup must not meet is what commits, and not a statement that runs, or a change of a table. */
  flags|= HA_CAN_ONLINE_BACKUPS;
  /* Statements repeat in another order what they read without the ranges locked. */
  THD *thd= ha_thd();
  if (thd && thd_tx_isolation(thd) <= ISO_READ_COMMITTED)
    flags&= ~HA_BINLOG_STMT_CAPABLE;
  return flags;
}

/* Of how many rows a statement inserts nobody knows before: their numbers come in pieces, and others take some between. Whoever
   repeats the statement gets them in one piece; so its rows are logged (MIXED), or the server warns (STATEMENT). */
bool ha_trefoil::autoinc_lock_mode_stmt_unsafe() const
{
  switch (thd_sql_command(ha_thd())) {
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_CREATE_TABLE:
  case SQLCOM_LOAD:
    return true;
  default:
    return false;
  }
}

ulong ha_trefoil::index_flags(uint key, uint, bool) const
{
  /* An entry gives back what was stored, also where its key says less: the server asks for whole columns alone. */
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE;
  bool is_primary= table_share && key == table_share->primary_key;
  return flags | (is_primary ? of_rows : HA_KEYREAD_ONLY | HA_DO_INDEX_COND_PUSHDOWN | HA_DO_RANGE_FILTER_PUSHDOWN);
}

bool ha_trefoil::get_error_message(int error, String *text)
{
  if (error == HA_ERR_NO_REFERENCED_ROW || error == HA_ERR_ROW_IS_REFERENCED || error == HA_ERR_FK_DEPTH_EXCEEDED)
    describe_foreign(m_why, text);
  else if (error > TREFOIL_ERR_TEXT)
    text->append(m_why.text, strlen(m_why.text));
  return false;
}

/* The server asks for the key of a duplicate behind the error, of a partitioned table through any of its handlers. */
static thread_local uint duplicate_key= MAX_KEY;

int ha_trefoil::failed()
{
  if (m_why.code == TREFOIL_DUPLICATE)
    duplicate_key= (uint) m_why.key;
  return server_error(ha_thd(), m_why);
}

uint ha_trefoil::key_of_duplicate() { return duplicate_key; }

/* SPDX-License-Identifier: GPL-2.0-only
   What the engine can do, and what it knows of a table. */
#include "errors.h"
#include "ha_trefoil.h"

ulonglong ha_trefoil::table_flags() const
{
  ulonglong flags= HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_PRIMARY_KEY_IN_READ_INDEX |
                   HA_PRIMARY_KEY_REQUIRED_FOR_POSITION | HA_TABLE_SCAN_ON_INDEX | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE |
                   HA_CAN_SQL_HANDLER | HA_BINLOG_ROW_CAPABLE | HA_BINLOG_STMT_CAPABLE | HA_CRASH_SAFE |
                   HA_CAN_SKIP_LOCKED | HA_CAN_VIRTUAL_COLUMNS | HA_CAN_TABLES_WITHOUT_ROLLBACK;
  /* Statements repeat in another order what they read without the ranges locked. */
  THD *thd= ha_thd();
  if (thd && thd_tx_isolation(thd) <= ISO_READ_COMMITTED)
    flags&= ~HA_BINLOG_STMT_CAPABLE;
  return flags;
}

ulong ha_trefoil::index_flags(uint key, uint, bool) const
{
  /* An entry gives back what was stored, also where its key says less: the server asks for whole columns alone. */
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY;
  return table_share && key == table_share->primary_key ? flags | HA_CLUSTERED_INDEX : flags;
}

int ha_trefoil::info(uint flag)
{
  if (flag & HA_STATUS_VARIABLE)
  {
    trefoil_table_stats now;
    trefoil_table_stat(m_table, &now);
    /* None would be taken for certain by the optimiser, which does not ask for the time. */
    stats.records= now.rows || (flag & HA_STATUS_TIME) ? now.rows : 1;
    stats.deleted= 0;
    stats.data_file_length= now.data_bytes;
    stats.index_file_length= now.index_bytes;
    stats.mean_rec_length= (ulong) (now.data_bytes / MY_MAX(now.rows, 1));
  }
  if (flag & HA_STATUS_CONST)
  {
    stats.block_size= 16384;
    for (uint n= 0; n < table->s->keys; n++)
    {
      KEY &key= table->key_info[n];
      for (uint part= 0; part < key.ext_key_parts; part++)
      {
        bool is_unique= (key.flags & HA_NOSAME) && part + 1 >= key.user_defined_key_parts;
        /* A guess until entries are counted: each part divides what is left by ten. */
        ulong rows= (ulong) (stats.records / pow(10, part + 1)) + 1;
        key.rec_per_key[part]= is_unique || part + 1 > key.user_defined_key_parts ? 1 : rows;
      }
    }
  }
  if (flag & HA_STATUS_ERRKEY)
    errkey= m_why.code == TREFOIL_DUPLICATE ? (uint) m_why.key : (uint) -1;
  if ((flag & HA_STATUS_AUTO) && table->found_next_number_field)
  {
    uint64_t next= 0;
    if (!trefoil_auto_next(m_table, table->s->next_number_index, &next, &m_why))
      stats.auto_increment_value= MY_MAX(next, 1);
  }
  return 0;
}

bool ha_trefoil::get_error_message(int error, String *text)
{
  if (error > TREFOIL_ERR_TEXT)
    text->append(m_why.text, strlen(m_why.text));
  return false;
}

int ha_trefoil::failed() { return server_error(ha_thd(), m_why); }

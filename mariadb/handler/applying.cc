/* SPDX-License-Identifier: GPL-2.0-only
   Rows that a replica applies, without a look at them (trefoil_read_free_apply). To change a row the server reads it by its primary
   key, puts what the log has over what it has read, and hands over both; then the engine reads it once more. Where the log has the
   row whole all of it is known: the server's read is left out, and the engine's too where the row is all that its table keeps of it
   (docs/decisions/0017). */
#include "errors.h"
#include "ha_trefoil.h"
#include "variables.h"

#include "rpl_rli.h"
#include "rpl_utility.h"

/* The row event that is applied to this table now, by a replica. */
static Rows_log_event *event_of(const TABLE *table, rpl_group_info *group)
{
  Log_event *event= group ? group->current_event : nullptr;
  Log_event_type type= event ? event->get_type_code() : UNKNOWN_EVENT;
  if (!LOG_EVENT_IS_UPDATE_ROW(type) && !LOG_EVENT_IS_DELETE_ROW(type))
    return nullptr;
  Rows_log_event *rows= static_cast<Rows_log_event *>(event);
  return group->m_table_map.get_table(rows->get_table_id()) == table ? rows : nullptr;
}

/* What the row was is all in the log, so what it becomes is known as a whole: columns of the same number and types, each of them
   there. What else would have to be made of the row that is stored (generated columns, versions, what triggers see), or is to be told
   of it (a replica that passes over what it does not find), is left to the server's read. */
static bool has_whole_rows(TABLE *table, rpl_group_info *group)
{
  Rows_log_event *rows= event_of(table, group);
  if (!rows || rows->get_width() != table->s->fields || !bitmap_is_set_all(rows->get_cols()))
    return false;
  TABLE_LIST *logged= group->tables_to_lock;
  while (logged && logged->table != table)
    logged= logged->next_global;
  if (!logged || static_cast<RPL_TABLE_LIST *>(logged)->m_conv_table)
    return false;
  return !table->triggers && !table->versioned() && !table->vfield && !table->part_info &&
         slave_exec_mode_options != SLAVE_EXEC_MODE_IDEMPOTENT;
}

int ha_trefoil::rnd_pos_by_record(uchar *record)
{
  m_is_unread= wants_read_free_apply() && has_whole_rows(table, ha_thd()->rgi_slave);
  if (!m_is_unread)
    return handler::rnd_pos_by_record(record);
  return trefoil_position(m_cursor, record, ref, &m_why) ? failed() : 0;
}

/* The row that is to be changed now. */
bool ha_trefoil::is_unread()
{
  bool is= m_is_unread && event_of(table, ha_thd()->rgi_slave);
  m_is_unread= false;
  return is;
}

/* A transaction that is applied on trial may come before the one that makes the row: it is applied again. */
int ha_trefoil::applied(int code)
{
  if (code != TREFOIL_NOT_FOUND)
    return code ? failed() : 0;
  bool is_on_trial= ha_thd()->rgi_slave->speculation == rpl_group_info::SPECULATE_OPTIMISTIC;
  return is_on_trial ? HA_ERR_RECORD_CHANGED : HA_ERR_KEY_NOT_FOUND;
}

int ha_trefoil::apply_update(const uchar *record)
{
  return applied(trefoil_apply_update(m_session, m_cursor, ref, record, &m_why));
}

int ha_trefoil::apply_delete() { return applied(trefoil_apply_delete(m_session, m_cursor, ref, &m_why)); }

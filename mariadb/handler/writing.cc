/* SPDX-License-Identifier: GPL-2.0-only
   Writing rows, and the numbers of AUTO_INCREMENT. */
#include "errors.h"
#include "ha_trefoil.h"

int ha_trefoil::write_row(const uchar *record)
{
  /* The first row of a temporary sequence comes without a lock of its table. */
  if (!m_session)
    if (int error= attach(ha_thd()))
      return error;
  bool is_new= table->next_number_field && record == table->record[0];
  if (is_new)
    if (int error= number_row())
      return error;
  if (int error= settle(trefoil_insert(m_session, m_cursor, record, &m_why) ? failed() : 0))
    return error;
  return is_new ? raise_auto() : 0;
}

/* The server knows one error of a number that cannot be had, 1467, which does not say why: that is for numbers that are used up, which is what
   TREFOIL_TOO_LONG says here. */
int ha_trefoil::number_row()
{
  m_why.code= TREFOIL_OK;
  int error= update_auto_increment();
  bool has_reason= m_why.code != TREFOIL_OK && m_why.code != TREFOIL_TOO_LONG;
  return error == HA_ERR_AUTOINC_READ_FAILED && has_reason ? failed() : error;
}

/* The number that the row in record[0] has is taken. */
int ha_trefoil::raise_auto()
{
  const Field *field= table->found_next_number_field;
  longlong used= const_cast<Field *>(field)->val_int();
  if (used == 0 || (used < 0 && !(field->flags & UNSIGNED_FLAG)))
    return 0;
  return trefoil_auto_raise(m_table, table->s->next_number_index, (uint64_t) used, &m_why) ? failed() : 0;
}

int ha_trefoil::update_row(const uchar *old, const uchar *record)
{
  Field *number= table->found_next_number_field;
  bool is_raised= number && record == table->record[0] && number->cmp_offset(old - record);
  int error;
  if (is_unread())
    error= apply_update(record);
  else
  {
    int code= trefoil_update(m_session, m_cursor, old, record, &m_why);
    if (code == TREFOIL_SAME)
      return HA_ERR_RECORD_IS_THE_SAME;
    error= settle(code ? failed() : 0);
  }
  return error || !is_raised ? error : raise_auto();
}

int ha_trefoil::delete_row(const uchar *record)
{
  if (is_unread())
    return apply_delete();
  return trefoil_delete(m_session, m_cursor, record, &m_why) ? failed() : 0;
}

void ha_trefoil::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                    ulonglong *reserved)
{
  /* Larger than the increment it does not count, as is documented. */
  if (offset > increment)
    offset= 0;
  /* What FOR PORTION OF leaves of a row is not the beginning of more: the server would ask for twice as many each time. */
  int command= thd_sql_command(ha_thd());
  if (command == SQLCOM_UPDATE || command == SQLCOM_DELETE)
    wanted= 1;
  uint64_t from= ULONGLONG_MAX, count= wanted;
  trefoil_auto_reserve(m_table, table->s->next_number_index, offset, increment, &count, &from, &m_why);
  *first= from;
  *reserved= count;
}

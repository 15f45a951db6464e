/* SPDX-License-Identifier: GPL-2.0-only
   Reading in the order of the rows, in that of a key, and by references. */
#include "errors.h"
#include "ha_trefoil.h"

int ha_trefoil::step(uint8_t where, uchar *record, int none)
{
  switch (trefoil_step(m_session, m_cursor, where, record, &m_why)) {
  case TREFOIL_OK:
    m_given++;
    return 0;
  case TREFOIL_END:
    return none;
  default:
    return failed();
  }
}

trefoil_seek ha_trefoil::seek_at(const uchar *key, uint length, uint8_t how)
{
  trefoil_seek seek{};
  seek.image= key;
  seek.image_length= length;
  seek.key= (int32_t) active_index;
  seek.how= how;
  seek.lock= m_lock;
  seek.judges_refs= filters_refs();
  if (seek.judges_refs || has_condition())
    seek.judge= judge;
  seek.judge_with= this;
  seek.shows_locked= m_shows_locked;
  if (get_lock_type() == F_RDLCK) /* otherwise the row may be changed, and that is told from the whole of it */
  {
    seek.reads= (const uint8_t *) table->read_set->bitmap;
    seek.reads_length= (table->read_set->n_bits + 7) / 8;
  }
  return seek;
}

int ha_trefoil::find(const uchar *key, uint length, uint8_t how, const key_range *end, uchar *record)
{
  trefoil_seek seek= seek_at(key, length, how);
  seek.only_key= has_all_read();
  seek.sure= sure_rows(m_is_range);
  /* The server looks whether a value is taken, through a handler that no statement has said its locks to. */
  if (table->key_info[active_index].algorithm == HA_KEY_ALG_LONG_HASH && get_lock_type() == F_WRLCK)
  {
    seek.lock= {TREFOIL_EXCLUSIVE, TREFOIL_WAIT};
    seek.claims= how == TREFOIL_EXACT;
  }
  if (end)
    set_end(&seek, end);
  if (trefoil_find(m_session, m_cursor, &seek, &m_why))
    return failed();
  return step(TREFOIL_FIRST, record, key ? HA_ERR_KEY_NOT_FOUND : HA_ERR_END_OF_FILE);
}

/* The key has all that is read. The server does not always say so: not where it finds a range anew for each row of another table. */
bool ha_trefoil::has_all_read() const
{
  if (keyread == active_index)
    return true;
  if (m_lock.mode != TREFOIL_UNLOCKED || thd_sql_command(ha_thd()) != SQLCOM_SELECT || active_index == table->s->primary_key ||
      !table->s->keys_for_keyread.is_set(active_index))
    return false;
  for (Field **field= table->field; *field; field++)
    if (bitmap_is_set(table->read_set, (*field)->field_index) && !(*field)->part_of_key.is_set(active_index))
      return false;
  return true;
}

bool ha_trefoil::has_condition() const { return pushed_idx_cond && pushed_idx_cond_keyno == active_index; }

/* Of an entry in the first record of the table. */
int ha_trefoil::judge(void *handler, void *, const uint8_t *reference)
{
  ha_trefoil *of= static_cast<ha_trefoil *>(handler);
  int answer= of->has_condition() ? (int) handler_index_cond_check(of) : (int) CHECK_POS;
  return answer == CHECK_POS && reference ? of->filtered(reference) : answer;
}

/* By the references of the rows that a range of another key has. */
int ha_trefoil::filtered(const uint8_t *reference)
{
  if (!has_condition() && thd_killed(ha_thd()))
    return CHECK_ABORTED_BY_USER;
  return pushed_rowid_filter->check((char *) reference) ? CHECK_POS : CHECK_NEG;
}

bool ha_trefoil::filters_refs() const { return pushed_rowid_filter && rowid_filter_is_active; }

bool ha_trefoil::rowid_filter_push(Rowid_filter *filter)
{
  pushed_rowid_filter= filter;
  return false;
}

Item *ha_trefoil::idx_cond_push(uint key, Item *condition)
{
  pushed_idx_cond= condition;
  pushed_idx_cond_keyno= key;
  in_range_check_pushed_down= true;
  return nullptr;
}

int ha_trefoil::read_range_first(const key_range *start, const key_range *end, bool is_one_key, bool sorted)
{
  m_is_range= true;
  int error= handler::read_range_first(start, end, is_one_key, sorted);
  m_is_range= false;
  return error;
}

/* So many rows of the range that it begins to read the statement asks for, as far as there are: every one, or as many as it is to change, if
   nothing ends it before but an error. */
ulonglong ha_trefoil::sure_rows(bool is_range) const
{
  const LEX *lex= ha_thd()->lex;
  /* Threads of the server read tables without one: a replica's place, when it starts. Then nothing of it is set. */
  if (!lex->is_lex_started)
    return 0;
  SELECT_LEX *only= lex->all_selects_list;
  if (!only || only->next_select_in_list())
    return 0;
  bool changes= lex->sql_command == SQLCOM_UPDATE || lex->sql_command == SQLCOM_DELETE;
  if (only->limit_params.explicit_limit)
  {
    /* Not one of several handlers, of partitions or of a merge of indexes: any of them may have all of it. */
    ulonglong wanted= changes && table->file == this ? lex->unit.lim.get_select_limit() : 0;
    return wanted > m_given ? wanted - m_given : 0;
  }
  if (changes)
    return ULONGLONG_MAX;
  const TABLE_LIST *last= lex->query_tables;
  /* What a statement copies from stands behind what it copies to. */
  bool copies= lex->sql_command == SQLCOM_INSERT_SELECT || lex->sql_command == SQLCOM_REPLACE_SELECT ||
               (lex->sql_command == SQLCOM_CREATE_TABLE && last && last == lex->create_last_non_select_table);
  if (copies && last)
    last= last->next_global;
  return is_range && last && !last->next_global ? ULONGLONG_MAX : 0;
}

/* A copy takes the place of its table: what is prepared by a session that is gone, whose metadata locks went with it, has to be
   in it or not to be at all. */
int ha_trefoil::wait_for_prepared()
{
  switch (thd_sql_command(ha_thd())) {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
  case SQLCOM_REPAIR:
    break;
  default:
    return 0;
  }
  if (table->s->tmp_table != NO_TMP_TABLE)
    return 0;
  trefoil_patience wait= patience_of(ha_thd());
  return trefoil_table_wait(m_table, &wait, &m_why) ? failed() : 0;
}

int ha_trefoil::rnd_init(bool scan)
{
  if (!scan)
    return 0;
  if (int error= wait_for_prepared())
    return error;
  trefoil_seek seek= seek_at(nullptr, 0, TREFOIL_FROM);
  seek.key= -1;
  m_is_first= true;
  seek.sure= sure_rows(true);
  return trefoil_find(m_session, m_cursor, &seek, &m_why) ? failed() : 0;
}

int ha_trefoil::rnd_next(uchar *record)
{
  uint8_t where= m_is_first ? TREFOIL_FIRST : TREFOIL_NEXT;
  m_is_first= false;
  return step(where, record, HA_ERR_END_OF_FILE);
}

int ha_trefoil::rnd_pos(uchar *record, uchar *reference)
{
  switch (trefoil_read_ref(m_session, m_cursor, reference, m_lock, record, &m_why)) {
  case TREFOIL_OK:
    return 0;
  case TREFOIL_NOT_FOUND:
    return HA_ERR_KEY_NOT_FOUND;
  default:
    return failed();
  }
}

void ha_trefoil::position(const uchar *record)
{
  if (trefoil_position(m_cursor, record, ref, &m_why))
    log_failure("a row's reference", m_why);
}

int ha_trefoil::index_init(uint key, bool)
{
  active_index= key;
  return 0;
}

int ha_trefoil::index_end()
{
  active_index= MAX_KEY;
  return 0;
}

int ha_trefoil::index_read_map(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function how)
{
  uint length= calculate_key_len(table, active_index, key, parts);
  switch (how) {
  case HA_READ_KEY_EXACT: return find(key, length, TREFOIL_EXACT, nullptr, record);
  case HA_READ_KEY_OR_NEXT: return find(key, length, TREFOIL_FROM, end_range, record);
  case HA_READ_AFTER_KEY: return find(key, length, TREFOIL_BEHIND, end_range, record);
  case HA_READ_PREFIX_LAST: return find(key, length, TREFOIL_LAST_EXACT, nullptr, record);
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
    return find(key, length, TREFOIL_UP_TO, nullptr, record);
  case HA_READ_BEFORE_KEY: return find(key, length, TREFOIL_BEFORE, nullptr, record);
  default:
    return HA_ERR_WRONG_COMMAND;
  }
}

int ha_trefoil::index_next(uchar *record) { return step(TREFOIL_NEXT, record, HA_ERR_END_OF_FILE); }

int ha_trefoil::index_next_same(uchar *record, const uchar *key, uint length)
{
  /* Not every scan was begun by these parts. Where it was, its rows have them: of a CHAR's front the server takes less for equal. */
  int error= step(TREFOIL_NEXT_SAME, record, HA_ERR_END_OF_FILE);
  return !error && !trefoil_is_exact(m_cursor) && key_cmp_if_same(table, key, active_index, length) ? HA_ERR_END_OF_FILE : error;
}

int ha_trefoil::index_prev(uchar *record) { return step(TREFOIL_PREVIOUS, record, HA_ERR_END_OF_FILE); }

int ha_trefoil::index_first(uchar *record) { return find(nullptr, 0, TREFOIL_FROM, end_range, record); }

int ha_trefoil::index_last(uchar *record) { return find(nullptr, 0, TREFOIL_UP_TO, nullptr, record); }

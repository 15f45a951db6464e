/* SPDX-License-Identifier: GPL-2.0-only
   Many ranges of a key in one go (multi-range read): those of an IN, of a condition with OR, the keys that a join has
   gathered. Where the plan asks for it and nothing is locked they are handed on as they come, and the rows of many come back
   at once, in the order of the ranges. What locks, and what a key alone answers, goes range by range, and so does what the
   plan does not ask it for: there a batch would cost more than it saves. */
#include "errors.h"
#include "ha_trefoil.h"

ha_rows ha_trefoil::multi_range_read_info_const(uint key, RANGE_SEQ_IF *sequence, void *with, uint ranges,
                                                uint *buffer_bytes, uint *mode, TREFOIL_ROWS_LIMIT
                                                Cost_estimate *cost)
{
  m_plans.init(this, table);
  return m_plans.dsmrr_info_const(key, sequence, with, ranges, buffer_bytes, mode, TREFOIL_ROWS_LIMIT_GIVEN cost);
}

ha_rows ha_trefoil::multi_range_read_info(uint key, uint ranges, uint rows, uint parts, uint *buffer_bytes, uint *mode,
                                          Cost_estimate *cost)
{
  m_plans.init(this, table);
  return m_plans.dsmrr_info(key, ranges, rows, parts, buffer_bytes, mode, cost);
}

int ha_trefoil::multi_range_read_init(RANGE_SEQ_IF *sequence, void *with, uint ranges, uint mode, HANDLER_BUFFER *buffer)
{
  if (int error= handler::multi_range_read_init(sequence, with, ranges, mode, buffer))
    return error;
  m_ranges_mode= mode;
  bool is_chosen= !(mode & HA_MRR_USE_DEFAULT_IMPL);
  m_reads_ranges= is_chosen && m_lock.mode == TREFOIL_UNLOCKED && !has_all_read() &&
                  thd_tx_isolation(ha_thd()) != ISO_SERIALIZABLE;
  if (is_chosen)
    status_var_increment(ha_thd()->status_var.ha_mrr_init_count);
  if (m_reads_ranges)
  {
    /* The engine keeps to the ends of the ranges. */
    end_range= nullptr;
    trefoil_find_ranges(m_cursor, next_range, this);
  }
  return 0;
}

int ha_trefoil::next_range(void *handler, trefoil_seek *out)
{
  ha_trefoil *of= static_cast<ha_trefoil *>(handler);
  KEY_MULTI_RANGE &range= of->mrr_cur_range;
  if (of->mrr_funcs.next(of->mrr_iter, &range))
    return 1;
  const key_range *start= range.start_key.keypart_map ? &range.start_key : nullptr;
  const key_range *end= range.end_key.keypart_map ? &range.end_key : nullptr;
  uint8_t how= !start ? TREFOIL_FROM : start->flag == HA_READ_KEY_EXACT ? TREFOIL_EXACT :
               start->flag == HA_READ_AFTER_KEY ? TREFOIL_BEHIND : TREFOIL_FROM;
  *out= of->seek_at(start ? start->key : nullptr, start ? start->length : 0, how);
  if (end && how != TREFOIL_EXACT)
    set_end(out, end);
  if (of->mrr_funcs.skip_index_tuple || out->judge)
    out->judge= judge_of_ranges;
  out->tag= range.ptr;
  status_var_increment(of->ha_thd()->status_var.ha_read_key_count);
  return 0;
}

/* What a join adds to the condition has to do with the rows that its keys are from. */
int ha_trefoil::judge_of_ranges(void *handler, void *tag, const uint8_t *reference)
{
  const ha_trefoil *of= static_cast<ha_trefoil *>(handler);
  int answer= judge(handler, tag, reference);
  bool is_skipped= answer == CHECK_POS && of->mrr_funcs.skip_index_tuple &&
                   of->mrr_funcs.skip_index_tuple(of->mrr_iter, tag);
  return is_skipped ? (int) CHECK_NEG : answer;
}

int ha_trefoil::step_ranges(range_id_t *range)
{
  bool knows_range= !(m_ranges_mode & HA_MRR_NO_ASSOCIATION);
  for (;;)
  {
    void *tag= nullptr;
    int code= trefoil_step_ranges(m_session, m_cursor, table->record[0], &tag, &m_why);
    table->status= code ? STATUS_NOT_FOUND : 0;
    if (code)
      return code == TREFOIL_END ? HA_ERR_END_OF_FILE : failed();
    *range= tag;
    if (!knows_range || !mrr_funcs.skip_record || !mrr_funcs.skip_record(mrr_iter, tag, nullptr))
      break;
  }
  update_index_statistics();
  status_var_increment(ha_thd()->status_var.ha_read_next_count);
  return table->vfield ? table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ) : 0;
}

int ha_trefoil::multi_range_read_next(range_id_t *range)
{
  int error;
  if (m_reads_ranges)
    error= step_ranges(range);
  else
    while (!(error= handler::multi_range_read_next(range)))
      if (!mrr_funcs.skip_index_tuple || !mrr_funcs.skip_index_tuple(mrr_iter, *range))
        break;
  /* A join does not tell it. */
  if (error && error != HA_ERR_END_OF_FILE && error != HA_ERR_KEY_NOT_FOUND)
    print_error(error, MYF(0));
  return error;
}

/* SPDX-License-Identifier: GPL-2.0-only
   One open table of one connection, as the server sees it. No storage here: what the server asks for is passed on. */
#ifndef HA_TREFOIL_H
#define HA_TREFOIL_H

#include "costs.h"
#include "server.h"
#include "transaction.h"
#include "versions.h"

/* Shared by all handlers of a table. */
class Shared : public Handler_share
{
public:
  explicit Shared(trefoil_table *table) : m_table(table) {}
  ~Shared() override { trefoil_table_close(m_table); }
  trefoil_table *const m_table;
};

class ha_trefoil final : public Handler_with_costs
{
public:
  ha_trefoil(handlerton *hton, TABLE_SHARE *share) : Handler_with_costs(hton, share) {}

  /* What the engine can do: capabilities.cc. */
  ulonglong table_flags() const override;
  ulong index_flags(uint key, uint part, bool all_parts) const override;
  uint max_supported_keys() const override { return 64; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  TREFOIL_INDEX_TYPE
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }
  bool get_error_message(int error, String *text) override;
  bool autoinc_lock_mode_stmt_unsafe() const override;

  /* For the optimiser: statistics.cc. */
  int info(uint flag) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  ha_rows records_in_range(uint key, const key_range *min, const key_range *max, page_range *pages) override;
  ha_rows estimate_rows_upper_bound() override;

  /* Tables: tables.cc. */
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int repair(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint changes) override;
  void update_create_info(HA_CREATE_INFO *info) override;

  /* Tables changed in place: alter.cc. */
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) override;
  bool can_convert_nocopy(const Field &field, const Column_definition &to) const override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;
  ulonglong table_version() const override { return m_table ? trefoil_table_definition_id(m_table) : 0; }

  /* Foreign keys: foreign.cc. */
  char *get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char *text) override;
  int get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys) override;
  int get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys) override;
  bool get_foreign_dup_key(char *child, uint child_room, char *key, uint key_room) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool can_switch_engines() override;
  bool is_fk_defined_on_table_or_index(uint index) override;

  /* Statements and how their rows are locked: locking.cc. */
  uint lock_count() const override { return 0; }
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type) override;
  int external_lock(THD *thd, int type) override;
  int start_stmt(THD *thd, thr_lock_type type) override;
  void unlock_row() override;
  void try_semi_consistent_read(bool is_wanted) override;
  bool was_semi_consistent_read() override { return trefoil_is_shown(m_cursor); }
  int reset() override;
  int extra(enum ha_extra_function) override { return 0; }

  /* Reading: reading.cc. */
  int rnd_init(bool scan) override;
  int rnd_end() override { return 0; }
  int rnd_next(uchar *record) override;
  int rnd_pos(uchar *record, uchar *ref) override;
  int rnd_pos_by_record(uchar *record) override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *a, const uchar *b) override { return trefoil_compare_refs(m_table, a, b); }
  int index_init(uint key, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function how) override;
  int index_next(uchar *record) override;
  int index_next_same(uchar *record, const uchar *key, uint length) override;
  int index_prev(uchar *record) override;
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  int read_range_first(const key_range *start, const key_range *end, bool is_one_key, bool sorted) override;
  Item *idx_cond_push(uint key, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;

  /* Many ranges at once: ranges.cc. */
  int multi_range_read_init(RANGE_SEQ_IF *sequence, void *with, uint ranges, uint mode, HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  ha_rows multi_range_read_info_const(uint key, RANGE_SEQ_IF *sequence, void *with, uint ranges, uint *buffer_bytes,
                                      uint *mode, TREFOIL_ROWS_LIMIT Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint key, uint ranges, uint rows, uint parts, uint *buffer_bytes, uint *mode,
                                Cost_estimate *cost) override;
  int multi_range_read_explain_info(uint mode, char *to, size_t room) override { return m_plans.dsmrr_explain_info(mode, to, room); }

  /* Writing: writing.cc. */
  int write_row(const uchar *record) override;
  int update_row(const uchar *old, const uchar *record) override;
  int delete_row(const uchar *record) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                          ulonglong *reserved) override;

private:
  ulonglong pages() const override { return m_pages; }
  bool has_foreign_keys() const noexcept;
  trefoil_text own_name() const { return table_name(table_share->normalized_path.str); }
  int attach(THD *thd);
  int attach_sequence();
  int plan(TABLE *altered, Alter_inplace_info *info, trefoil_alter **out, uint8_t *builds);
  int settle(int error);
  int failed();
  static uint key_of_duplicate();
  int wait_for_prepared();
  int find(const uchar *key, uint length, uint8_t how, const key_range *end, uchar *record);
  int step(uint8_t where, uchar *record, int none);
  void count_distinct();
  int number_row();
  int raise_auto();
  bool is_unread();
  int apply_update(const uchar *record);
  int apply_delete();
  int applied(int code);
  ulonglong sure_rows(bool is_range) const;
  trefoil_seek seek_at(const uchar *key, uint length, uint8_t how);
  bool has_condition() const;
  bool has_all_read() const;
  bool filters_refs() const;
  int filtered(const uint8_t *reference);
  static int judge(void *handler, void *tag, const uint8_t *reference);
  static int judge_of_ranges(void *handler, void *tag, const uint8_t *reference);
  static int next_range(void *handler, trefoil_seek *out);
  int step_ranges(range_id_t *range);

  trefoil_table *m_table= nullptr;
  trefoil_cursor *m_cursor= nullptr;
  /* Of the connection that uses the table now. */
  trefoil_session *m_session= nullptr;
  /* Of a sequence: its numbers are taken whatever becomes of the transaction that took them. */
  trefoil_session *m_own_session= nullptr;
  trefoil_canceller *m_own_canceller= nullptr;
  trefoil_lock m_lock= {TREFOIL_UNLOCKED, TREFOIL_WAIT};
  trefoil_failure m_why= {};
  bool m_shows_locked= false;
  trefoil_lock m_stored_lock= {TREFOIL_UNLOCKED, TREFOIL_WAIT};
  bool m_is_first= false;
  /* The row at `ref` is taken to be what a replica's log says, and was not read: applying.cc. */
  bool m_is_unread= false;
  /* What a scan reads. */
  ulonglong m_pages= 1;
  /* What is read is a range, or the table. */
  bool m_is_range= false;
  /* Rows given to the statement. */
  ulonglong m_given= 0;
  /* How the server's plans name a read of many ranges, and when they choose one: as with InnoDB. */
  DsMrr_impl m_plans;
  uint m_ranges_mode= 0;
  /* Ranges are read ahead, and their rows at once. */
  bool m_reads_ranges= false;
};

/* The other end of a range, as the engine takes it. */
inline void set_end(trefoil_seek *seek, const key_range *end)
{
  seek->end= end->key;
  seek->end_length= end->length;
  seek->end_is= end->flag == HA_READ_BEFORE_KEY ? TREFOIL_END_EXCLUDED : TREFOIL_END_INCLUDED;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only
   What the optimiser is told: rows, ranges, different values. What reading costs: costs.h. */
#include "errors.h"
#include "ha_trefoil.h"
#include "options.h"

#include <my_dir.h>

/* InnoDB's unit of reading, and ours: nodes of other sizes are counted in it. */
static constexpr uint page_bytes= 16384;

static time_t created(const TABLE_SHARE *share)
{
  char path[FN_REFLEN];
  MY_STAT stat;
  my_snprintf(path, sizeof path, "%s%s", share->normalized_path.str, reg_ext);
  return my_stat(path, &stat, MYF(0)) ? stat.st_ctime : 0;
}

/* Which of the columns of an index of the engine, the primary key's behind its own, a part of a key is. */
static uint column_of(const TABLE *table, const KEY &key, uint part)
{
  if (part < key.user_defined_key_parts)
    return part;
  const KEY &primary= table->key_info[table->s->primary_key];
  uint at= 0;
  while (at + 1 < primary.user_defined_key_parts && primary.key_part[at].fieldnr != key.key_part[part].fieldnr)
    at++;
  return key.user_defined_key_parts + at;
}

void ha_trefoil::count_distinct()
{
  for (uint n= 0; n < table->s->keys; n++)
  {
    KEY &key= table->key_info[n];
    uint64_t values[2 * MAX_REF_PARTS]= {0};
    if (trefoil_distinct(m_table, n, values, 2 * MAX_REF_PARTS, &m_why))
      log_failure("different values of a key", m_why);
    for (uint part= 0; part < key.ext_key_parts; part++)
    {
      uint64_t distinct= values[column_of(table, key, part)];
      /* Where nothing was counted, in a table that was empty a moment ago, InnoDB of 11.8 says that each has a value of its own. */
      distinct= distinct || says_half ? distinct : stats.records;
      ulong rows= (ulong) (stats.records / MY_MAX(distinct, 1)) / (says_half ? 2 : 1);
      key.rec_per_key[part]= MY_MAX(rows, 1);
    }
  }
}

int ha_trefoil::info(uint flag)
{
  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_TIME))
  {
    trefoil_table_stats now;
    trefoil_table_stat(m_table, &now);
    /* None would be taken for certain by the optimiser, which does not ask for the time. */
    stats.records= now.rows || (flag & (HA_STATUS_TIME | HA_STATUS_OPEN)) ? now.rows : 1;
    stats.deleted= 0;
    stats.data_file_length= now.data_bytes;
    stats.index_file_length= now.index_bytes;
    stats.mean_rec_length= (ulong) (now.data_bytes / MY_MAX(now.rows, 1));
    stats.update_time= (time_t) now.changed_at;
    m_pages= MY_MAX(now.row_node_bytes / page_bytes, 1);
  }
  if (flag & HA_STATUS_CONST)
  {
    stats.block_size= page_bytes;
    stats.create_time= created(table->s);
    count_distinct();
  }
  if (flag & HA_STATUS_ERRKEY)
    errkey= key_of_duplicate();
  if ((flag & HA_STATUS_AUTO) && table->found_next_number_field)
  {
    uint64_t next= 0;
    if (!trefoil_auto_next(m_table, table->s->next_number_index, &next, &m_why))
      stats.auto_increment_value= MY_MAX(next, 1);
  }
  return 0;
}

int ha_trefoil::analyze(THD *, HA_CHECK_OPT *)
{
  if (trefoil_analyze(m_table, &m_why))
  {
    log_failure("ANALYZE", m_why);
    return HA_ADMIN_FAILED;
  }
  return info(HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_TIME) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}

ha_rows ha_trefoil::records_in_range(uint key, const key_range *min, const key_range *max, page_range *)
{
  trefoil_seek seek{};
  seek.key= (int32_t) key;
  seek.how= TREFOIL_FROM;
  if (min)
  {
    seek.image= min->key;
    seek.image_length= min->length;
    seek.how= min->flag == HA_READ_AFTER_KEY ? TREFOIL_BEHIND : TREFOIL_FROM;
  }
  if (max)
    set_end(&seek, max);
  uint64_t rows= 0;
  if (trefoil_estimate(m_table, &seek, &rows, &m_why))
  {
    log_failure("rows of a range", m_why);
    return HA_POS_ERROR;
  }
  /* Of a long range InnoDB says half of the table at most. */
  if (m_pages > 10)
    set_if_smaller(rows, stats.records / 2);
  /* None is certain only of what is committed. */
  return MY_MAX(rows, 1);
}

/* Rows of the least length that would fill the pages, twice: by this InnoDB divides what a scan costs. */
ha_rows ha_trefoil::estimate_rows_upper_bound()
{
  uint least= 18 + (table->s->null_fields + 7) / 8;
  for (uint n= 0; n < table->s->fields; n++)
  {
    const Field *field= table->field[n];
    bool is_variable= field->real_type() == MYSQL_TYPE_VARCHAR || (field->flags & BLOB_FLAG);
    least+= is_variable ? 1 : field->pack_length();
  }
  return 2 * m_pages * page_bytes / least;
}

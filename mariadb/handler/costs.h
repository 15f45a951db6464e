/* SPDX-License-Identifier: GPL-2.0-only
   What reading costs, to the optimiser: InnoDB's costs, so that a table gets the plans that it had there. The server asks for them
   otherwise since 11.0: a number of pages before, then input and processor apart, which it counts by itself from lengths, and
   from times that an engine gives for a look-up and a step. All that differs of it is in this file. */
#ifndef TREFOIL_COSTS_H
#define TREFOIL_COSTS_H

#include "options.h"

/* Of how many rows a read of many ranges wants to know: since 11.0 no more than so many. */
#if MYSQL_VERSION_ID < 110000
#define TREFOIL_ROWS_LIMIT
#define TREFOIL_ROWS_LIMIT_GIVEN
#else
#define TREFOIL_ROWS_LIMIT ha_rows limit,
#define TREFOIL_ROWS_LIMIT_GIVEN limit,
#endif

class Handler_with_costs : public handler
{
public:
  using handler::handler;

  static void set_costs(handlerton *hton)
  {
#if MYSQL_VERSION_ID >= 110000
    /* As InnoDB gives them, in milliseconds. */
    hton->update_optimizer_costs= [](OPTIMIZER_COSTS *costs) {
      costs->row_next_find_cost= 0.00007013;
      costs->row_lookup_cost= 0.00076597;
      costs->key_next_find_cost= 0.00009900;
      costs->key_lookup_cost= 0.00079112;
      costs->row_copy_cost= 0.00006087;
    };
#endif
  }

protected:
  /* What a scan reads, in pages of InnoDB's size. */
  virtual ulonglong pages() const= 0;
  /* Before 11.0 the server likes to scan too much: half as many rows of a value as there are is what InnoDB says, too. */
  static constexpr bool says_half= MYSQL_VERSION_ID < 110000;
  /* What the rows' own key is to the server. InnoDB does not let it be read alone, as other keys may: since 11.0 that is what
     plans go by. */
  static constexpr ulong of_rows= HA_CLUSTERED_INDEX | (MYSQL_VERSION_ID < 110000 ? HA_KEYREAD_ONLY : 0);

  /* Along a clustering key rows cost what they cost along the primary key. The server is not told HA_CLUSTERED_INDEX of it: it
     takes that for the order of the rows, and of such keys for columns that all others have, where it merges indexes. */
  bool has_rows(uint key) const { return key != table->s->primary_key && is_clustering(table->key_info[key]); }

#if MYSQL_VERSION_ID < 110000
  double scan_time() override { return (double) pages(); }

  double read_time(uint key, uint ranges, ha_rows rows) override
  {
    if (key != table->s->primary_key && !has_rows(key))
      return handler::read_time(key, ranges, rows);
    if (rows <= 2)
      return (double) rows;
    ha_rows all= estimate_rows_upper_bound();
    return all < rows ? scan_time() : ranges + (double) rows / (double) all * scan_time();
  }
#else
  IO_AND_CPU_COST scan_time() override { return {(double) row_blocks(), (double) pages() * INDEX_BLOCK_COPY_COST}; }
  ulonglong row_blocks() override { return pages() * stats.block_size / IO_SIZE; }

  ulonglong index_blocks(uint key, uint ranges, ha_rows rows) override
  {
    return has_rows(key) ? pages_along(ranges, rows) * stats.block_size / IO_SIZE : handler::index_blocks(key, ranges, rows);
  }

  IO_AND_CPU_COST keyread_time(uint key, ulong ranges, ha_rows rows, ulonglong blocks) override
  {
    m_rows_along= has_rows(key) ? rows : 0;
    m_ranges_along= ranges;
    return handler::keyread_time(key, ranges, rows, m_rows_along ? pages_along(ranges, rows) : blocks);
  }

  /* What rows cost is asked right behind what their entries do, of which there may be one more in each range. Those of a clustering key
     are there: the server adds that they are looked up and copied, and the first is not so. */
  IO_AND_CPU_COST rnd_pos_time(ha_rows rows) override
  {
    bool is_along= rows <= m_rows_along && m_rows_along - rows <= m_ranges_along;
    return is_along ? IO_AND_CPU_COST{0, -(double) rows * ROW_LOOKUP_COST} : handler::rnd_pos_time(rows);
  }

private:
  ulonglong pages_along(ulong ranges, ha_rows rows) const { return rows * table->s->stored_rec_length * 4 / 3 / stats.block_size + ranges; }

  ha_rows m_rows_along= 0;
  ulong m_ranges_along= 0;
#endif
};

#endif

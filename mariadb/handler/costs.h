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

  static void set_costs(handlerton *hton);

#if MYSQL_VERSION_ID < 110000
  double scan_time() override { return (double) pages(); }

  /* Along a clustering key rows cost what they cost along the primary key. The server is not told HA_CLUSTERED_INDEX of it: it
     takes that for the order of the rows, and of such keys for columns that all others have, where it merges indexes. */
  double read_time(uint key, uint ranges, ha_rows rows) override
  {
    if (key != table->s->primary_key && !is_clustering(table->key_info[key]))
      return handler::read_time(key, ranges, rows);
    if (rows <= 2)
      return (double) rows;
    ha_rows all= estimate_rows_upper_bound();
    return all < rows ? scan_time() : ranges + (double) rows / (double) all * scan_time();
  }
#endif

protected:
  /* What a scan reads, in pages of InnoDB's size. */
  virtual ulonglong pages() const= 0;
};

#if MYSQL_VERSION_ID < 110000
inline void Handler_with_costs::set_costs(handlerton *) {}
#else
/* As InnoDB gives them, in milliseconds. */
inline void Handler_with_costs::set_costs(handlerton *hton)
{
  hton->update_optimizer_costs= [](OPTIMIZER_COSTS *costs) {
    costs->row_next_find_cost= 0.00007013;
    costs->row_lookup_cost= 0.00076597;
    costs->key_next_find_cost= 0.00009900;
    costs->key_lookup_cost= 0.00079112;
    costs->row_copy_cost= 0.00006087;
  };
}
#endif

#endif

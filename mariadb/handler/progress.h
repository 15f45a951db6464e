/* SPDX-License-Identifier: GPL-2.0-only
   How far a statement is, for SHOW PROCESSLIST and for clients that ask for it. */
#ifndef TREFOIL_PROGRESS_H
#define TREFOIL_PROGRESS_H

#include "server.h"

#include "transaction.h"

/* Of the statement that runs, until it goes out of scope. */
class Progress
{
public:
  explicit Progress(THD *thd) : m_thd(thd) { thd_progress_init(m_thd, 1); }
  ~Progress() { thd_progress_end(m_thd); }
  Progress(const Progress &)= delete;
  void operator=(const Progress &)= delete;

  THD *thd() const { return m_thd; }
  /* Other threads that work for it say nothing: what is told goes to the client of this one. */
  void at(uint64_t done, uint64_t total) const
  {
    if (m_thd == current_thd && total)
      thd_progress_report(m_thd, MY_MIN(done, total), total);
  }

private:
  THD *const m_thd;
};

/* Of keys that are built: told when the engine asks whether they are still wanted. */
class Build_progress : public Progress
{
public:
  Build_progress(THD *thd, const trefoil_table *table) : Progress(thd), m_table(table), m_wait(patience_of(thd)) {}
  trefoil_patience patience()
  {
    trefoil_patience wait= m_wait;
    wait.goes_on= goes_on;
    wait.of= this;
    return wait;
  }

private:
  static int goes_on(void *of)
  {
    const Build_progress *it= static_cast<Build_progress *>(of);
    uint64_t done, total;
    if (it->thd() == current_thd && trefoil_table_building(it->m_table, &done, &total))
      it->at(done, total);
    return it->m_wait.goes_on(it->m_wait.of);
  }

  const trefoil_table *const m_table;
  const trefoil_patience m_wait;
};

#endif

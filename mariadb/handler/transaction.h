/* SPDX-License-Identifier: GPL-2.0-only
   Transactions of connections. */
#ifndef TREFOIL_TRANSACTION_H
#define TREFOIL_TRANSACTION_H

#include "server.h"

/* What a connection has in the engine. */
struct Connection
{
  trefoil_session *session;
  trefoil_canceller *canceller;
  /* The server's last place in the binary log for this connection, when it prepared. */
  ulonglong place_before;
  /* Prepared, and the server will order it. */
  bool is_to_be_ordered;
  /* What was prepared has its place in the binary log, which repeats it after a crash. */
  bool is_logged;
};

/* Begins what a statement needs and tells the server that the engine takes part. */
int begin_statement(THD *thd, Connection **out);
bool is_in_transaction(THD *thd);
Connection *connection(THD *thd);
/* Whose transaction may have written to a table that is dropped now: of no other statement, unless that ends at once. */
trefoil_session *session_of_drop(THD *thd);
/* How long a change of a table waits, of whichever thread. */
trefoil_patience patience_of(THD *thd);
/* Of a transaction that is not in the binary log: what other engines have of it may be lost. */
void warn_of_other_engines();
/* The server hears of waits for row locks: waits.cc. */
void report_waits();
void set_transaction_functions(handlerton *hton);
/* Two-phase commit: two_phase.cc. */
void set_two_phase_functions(handlerton *hton);

#endif

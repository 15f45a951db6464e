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
};

/* Begins what a statement needs and tells the server that the engine takes part. */
int begin_statement(THD *thd, Connection **out);
void set_transaction_functions(handlerton *hton);

#endif

/* SPDX-License-Identifier: GPL-2.0-only
   Codes of the engine as the server's. */
#ifndef TREFOIL_ERRORS_H
#define TREFOIL_ERRORS_H

#include "server.h"

/* Codes with a text of the engine's own, for handler::get_error_message. */
constexpr int TREFOIL_ERR_TEXT= HA_ERR_LAST + 100;

/* Of a failed call. Marks the transaction where the engine has ended it. */
int server_error(THD *thd, const trefoil_failure &why);
/* The same of a commit, or its first phase, or of a table that is made or dropped: for those errors the server has one of its own, which does not say why. */
int end_error(THD *thd, const trefoil_failure &why);

/* Written to the error log: where the server has no place for a text. Of a full disk, and of writes that are refused, once a minute. */
void log_failure(const char *what, const trefoil_failure &why);
/* The same, at the moment from which writes are refused. By any thread, also one that is none of the server's. */
void log_refusal(trefoil_text line);

#endif

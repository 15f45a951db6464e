/* SPDX-License-Identifier: GPL-2.0-only
   Tables of INFORMATION_SCHEMA. */
#ifndef TREFOIL_INFORMATION_H
#define TREFOIL_INFORMATION_H

#include "server.h"

/* Makes the table of the plugin's name. */
int make_view(void *plugin);
/* Before the database is open, and from its end on, they are empty. Who looks is waited for. */
void open_views(bool are_open);

#endif

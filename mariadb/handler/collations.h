/* SPDX-License-Identifier: GPL-2.0-only
   What orders text that its bytes do not order. */
#ifndef TREFOIL_COLLATIONS_H
#define TREFOIL_COLLATIONS_H

#include "server.h"

/* Given to the engine when it opens. */
extern const trefoil_collations server_collations;

/* The number of the collation that orders a column; 0: its bytes do. */
uint32_t collation_of(const Field *field);

#endif

/* SPDX-License-Identifier: GPL-2.0-only
   The engine as the handler calls it: opaque handles, plain structures, one failure by value. Made by hand beside
   mariadb/capi/src/abi.rs; both sides assert the sizes.

   Every function that can fail returns a TREFOIL_* code and fills `why` unless it is TREFOIL_OK, TREFOIL_END,
   TREFOIL_NOT_FOUND or TREFOIL_SAME. Nothing is freed across the boundary. A panic comes back as TREFOIL_PANIC; after one the engine
   refuses writes. */
#ifndef TREFOIL_CAPI_H
#define TREFOIL_CAPI_H

#include <stddef.h>
#include <stdint.h>

extern "C" {

enum {
  TREFOIL_OK = 0,
  TREFOIL_END = 1,         /* no more rows */
  TREFOIL_NOT_FOUND = 2,   /* no row has the key */
  TREFOIL_DUPLICATE = 3,   /* `why.key` is the number of the key */
  TREFOIL_DEADLOCK = 4,    /* the whole transaction was rolled back */
  TREFOIL_LOCK_TIMEOUT = 5,
  TREFOIL_CANCELLED = 6,
  TREFOIL_CHANGED = 7,     /* snapshot isolation: the row is newer than the snapshot */
  TREFOIL_FULL = 8,        /* disk or memory */
  TREFOIL_READ_ONLY = 9,
  TREFOIL_NO_TABLE = 10,
  TREFOIL_TABLE_EXISTS = 11,
  TREFOIL_DEFINITION = 12, /* the table is not what the server takes it for, or was changed meanwhile */
  TREFOIL_UNSUPPORTED = 13,
  TREFOIL_TOO_LONG = 14,
  TREFOIL_CORRUPT = 15,
  TREFOIL_UNKNOWN_OUTCOME = 16,
  TREFOIL_NO_XID = 17,
  TREFOIL_FAILED = 18,     /* anything else; `why.text` says what */
  TREFOIL_PANIC = 19,
  TREFOIL_SAME = 20,       /* an update that changes nothing */
  TREFOIL_NO_PARENT = 21,  /* `why.text` of these three: the child's name, a newline, that of the foreign key */
  TREFOIL_HAS_CHILDREN = 22,
  TREFOIL_TOO_DEEP = 23,
  TREFOIL_REFERENCED = 24, /* others' foreign keys refer to what is to go */
  TREFOIL_FOREIGN_REFUSED = 25,
  TREFOIL_FOREIGN_EXISTS = 26,
  TREFOIL_INDEX_NEEDED = 27,      /* by a foreign key, of this table or to it; `why.text` is the index */
  TREFOIL_FOREIGN_DUPLICATE = 28, /* in a table that a cascade came to */
  TREFOIL_SET_ASIDE = 29,         /* a damaged key that is not used any more */
  TREFOIL_PARENT_UNFIT = 30,      /* of a foreign key that is added; `why.text` is the parent, a newline, the name it was given */
  TREFOIL_NEVER_NULL = 31,        /* SET NULL of a column that may not be NULL; `why.text` is the foreign key */
  TREFOIL_BESIDE = 32             /* the table was made or changed beside the transaction, whose snapshot is older */
};

typedef struct { const char *ptr; size_t len; } trefoil_text;
typedef struct { int32_t code; int32_t key; char text[504]; } trefoil_failure;

typedef struct trefoil_database trefoil_database;
typedef struct trefoil_session trefoil_session;     /* of one connection */
typedef struct trefoil_canceller trefoil_canceller; /* of the same, for other threads */
typedef struct trefoil_table trefoil_table;
typedef struct trefoil_alter trefoil_alter;         /* a table being changed in place */
typedef struct trefoil_cursor trefoil_cursor;       /* of one handler */

enum { TREFOIL_SYNC = 0, TREFOIL_WRITE = 1, TREFOIL_BUFFERED = 2 };

/* How a collation orders text. */
typedef struct {
  uint8_t levels;        /* bit n: it has level n */
  uint8_t padded;        /* bit n: in level n a text goes on with blanks without end */
  uint8_t in_passes;     /* what it writes for level 0 is all of it; blanks at the end of a text do not count */
  uint8_t space_length;
  uint8_t space[4];      /* a blank in its character set */
  uint8_t longest;       /* bytes of its longest character */
  uint8_t reserved[3];
} trefoil_collation;
static_assert(sizeof(trefoil_collation) == 12, "as in abi.rs");

/* The server's collations, by its numbers of them. Called from any thread, at any time while the database is open;
   what they answer never changes. */
typedef struct {
  /* 0 if there is no such collation. */
  uint8_t (*describe)(uint32_t collation, trefoil_collation *out);
  /* The weights of a text in a level, without those of blanks behind it; how many bytes. `room` bytes: there may be
     more. */
  size_t (*weights)(uint32_t collation, uint8_t level, const uint8_t *text, size_t length, uint8_t *out, size_t room);
  /* Bytes of the first so many characters of a text, and in `found` how many it has, at most so many. */
  size_t (*front)(uint32_t collation, const uint8_t *text, size_t length, size_t characters, size_t *found);
  /* Most bytes of the weights of a text of so many characters, all levels together, and in `zeros` how many of them may
     be 0. */
  size_t (*weights_max)(uint32_t collation, size_t characters, size_t *zeros);
} trefoil_collations;

/* What may be set anew at any time. */
typedef struct {
  uint64_t io_budget;      /* bytes a second; 0: no bound */
  uint64_t gc_debt_limit;  /* bytes; 0: the engine's own */
  uint8_t deadlock_detect;
  uint8_t reserved[7];
} trefoil_settings;

typedef struct {
  trefoil_text directory;
  uint64_t buffer_size;
  uint64_t log_capacity;
  uint64_t disk_reserve;
  uint64_t checkpoint_replay_seconds;
  trefoil_collations collations;
  uint64_t background_threads; /* 0: by the number of cores */
  trefoil_settings settings;
  /* Told a line for the error log, once, when the engine begins to refuse writes: the cause, and what helps. By whatever thread met the fault: it may hold locks of the
     engine, is perhaps none of the server's, and calls nothing here. */
  void (*writes_refused)(trefoil_text line);
} trefoil_options;

/* How a column lies in the server's record. */
enum {
  TREFOIL_SIGNED = 1,    /* little-endian, 1 to 8 bytes */
  TREFOIL_UNSIGNED = 2,
  TREFOIL_FLOAT = 3,
  TREFOIL_DOUBLE = 4,
  TREFOIL_IMAGE = 5,     /* bytes in the order of the values: temporal types, DECIMAL, BIT */
  TREFOIL_CHAR = 6,      /* of fixed length, filled up with `pad` */
  TREFOIL_VARCHAR = 7,   /* `length_bytes` of length, then the bytes */
  TREFOIL_BLOB = 8       /* `length_bytes` of length, then a pointer */
};

typedef struct {
  trefoil_text name;
  uint32_t offset;
  uint32_t length;       /* bytes in the record, without length bytes; of a blob the most it can have */
  uint32_t null_offset;
  uint8_t null_bit;      /* 0: never NULL */
  uint8_t kind;
  uint8_t length_bytes;
  uint8_t pad_length;
  uint8_t pad[4];        /* what a TREFOIL_CHAR is filled up with */
  uint32_t collation;    /* of text; 0: its bytes order it */
  uint32_t characters;   /* of a TREFOIL_CHAR whose blanks at the end count: its length; otherwise 0 */
  uint32_t number;       /* in the server, which may have columns that are not kept */
} trefoil_field;

typedef struct {
  uint32_t field;
  uint32_t length;       /* bytes in the server's key, without length bytes */
  uint32_t front;        /* characters of text, bytes of others; 0: the whole column */
  uint32_t descending;
} trefoil_part;

enum {
  TREFOIL_CLAIMED = 1,    /* no two rows may have what it is made of: the server looks, under `claims` of trefoil_seek */
  TREFOIL_CLUSTERING = 2  /* it has the whole row */
};

enum {
  TREFOIL_BUILDS_KEYS = 1,
  TREFOIL_BUILDS_ROWS = 2 /* the rows, and perhaps keys */
};

typedef struct {
  trefoil_text name;
  const trefoil_part *parts;
  uint32_t part_count;
  uint8_t unique;
  uint8_t structure;     /* 0 auto, 1 btree, 2 betree, 3 lsm */
  uint8_t compression;   /* 0 lz4, 1 none, 2 zstd */
  uint8_t flags;         /* TREFOIL_CLAIMED, TREFOIL_CLUSTERING */
  uint32_t node_size;    /* 0: the default */
  uint32_t extended;     /* parts behind those that the server's keys may go on with: of the primary key */
  uint8_t shape;         /* 0 not said, 1 lazy, 2 leveled, 3 universal: of lsm only */
} trefoil_key;

typedef struct {
  const trefoil_field *fields;
  const trefoil_key *keys;
  const uint8_t *defaults; /* a record of the default values: what no column covers is taken from it */
  uint32_t field_count;
  uint32_t key_count;
  int32_t primary;       /* number of the primary key; -1: rows have hidden numbers */
  uint32_t record_length;
  trefoil_key hidden;    /* settings of what keeps rows with hidden numbers; it has no parts */
} trefoil_definition;

typedef struct {
  uint64_t rows;
  uint64_t data_bytes;
  uint64_t index_bytes;
  uint64_t row_node_bytes; /* of the nodes that a scan of the rows reads, as they are in memory */
  int64_t changed_at;      /* seconds since 1970; 0: not since the server started */
} trefoil_table_stats;

static_assert(sizeof(trefoil_failure) == 512, "as in abi.rs");
static_assert(sizeof(trefoil_settings) == 24, "as in abi.rs");
static_assert(sizeof(trefoil_options) == 120, "as in abi.rs");
static_assert(sizeof(trefoil_field) == 48, "as in abi.rs");
static_assert(sizeof(trefoil_part) == 16, "as in abi.rs");
static_assert(sizeof(trefoil_key) == 48, "as in abi.rs");
static_assert(sizeof(trefoil_definition) == 88, "as in abi.rs");
static_assert(sizeof(trefoil_table_stats) == 40, "as in abi.rs");

/* A foreign key. Names of tables are the engine's. */
typedef struct {
  trefoil_text name;       /* empty of one that is added: it gets one */
  trefoil_text table;      /* who has it; not of one that is added */
  trefoil_text parent;
  trefoil_text parent_key; /* the key that it refers to, as far as there is one; not of one that is added */
  const trefoil_text *columns;
  const trefoil_text *parent_columns;
  uint32_t count;
  uint32_t nullable;       /* a bit for each column that may be NULL */
  uint32_t parent_nullable;
  uint8_t on_delete;       /* as the server numbers it: 0 not said, 1 restrict, 2 no action, 3 cascade, 4 set null */
  uint8_t on_update;
  uint8_t reserved[2];
} trefoil_foreign;

/* What becomes of a table's foreign keys. */
typedef struct {
  trefoil_text label;      /* the table as users know it: its foreign keys without a name are called after it */
  trefoil_text like;       /* the table whose place a new one takes, with what it has; or empty */
  const trefoil_foreign *added;
  const trefoil_text *dropped;
  uint32_t added_count;
  uint32_t dropped_count;
  uint8_t unchecked;       /* parents may be missing */
  uint8_t reserved[7];
} trefoil_foreign_change;

static_assert(sizeof(trefoil_foreign) == 96, "as in abi.rs");
static_assert(sizeof(trefoil_foreign_change) == 64, "as in abi.rs");

/* Shows the foreign keys of a table, or if `is_parent` those that refer to it, by name; how many. */
uint32_t trefoil_foreign_each(trefoil_database *db, trefoil_text name, uint8_t is_parent,
                              void (*show)(void *to, const trefoil_foreign *one), void *to);

/* The database. */
int trefoil_open(const trefoil_options *options, trefoil_database **out, trefoil_failure *why);
void trefoil_close(trefoil_database *db);
/* `report` is called by each thread that waits for a row lock, which holds no lock inside the engine then: when it begins to
   wait; for each connection in its way, which does not end its transaction, nor is closed, until `report` returns; and when it has
   waited. It answers the first with the milliseconds after which it hears again who is in the way; 0: not at all. */
enum { TREFOIL_WAIT_BEGINS= 0, TREFOIL_WAIT_BLOCKED= 1, TREFOIL_WAIT_ENDS= 2 };
void trefoil_report_waits(trefoil_database *db, uint32_t (*report)(uint8_t what, void *connection));
int trefoil_sync(trefoil_database *db, trefoil_failure *why);
/* What ends a line of the error log about a failure of this code: what helps, or nothing. Null: no line is due, one of that kind was written
   within the last minute. */
const char *trefoil_line_due(int32_t code);
/* The same, before the server gives up a log that has these commits. */
int trefoil_checkpoint(trefoil_database *db, trefoil_failure *why);
void trefoil_set(trefoil_database *db, const trefoil_settings *settings);
/* A backup into a new or empty directory, at most `rate` bytes a second; 0: as fast as it goes. `goes_on` is told how many
   bytes of how many are copied; `at_moment` calls `trefoil_moment_come`, once: what was ordered before is in the backup, what is
   ordered behind it is not. It may write into the directory. Once either answers 0 the backup is cancelled, and what was copied removed.
   `what` may be "DIRECTORY SINCE BASE": an increment to the backup in BASE. */
typedef struct trefoil_moment trefoil_moment;
int trefoil_backup(trefoil_database *db, trefoil_text what, uint64_t rate,
                   uint8_t (*goes_on)(void *with, uint64_t done, uint64_t total),
                   uint8_t (*at_moment)(void *with, trefoil_moment *moment, trefoil_text directory), void *with,
                   trefoil_failure *why);
void trefoil_moment_come(trefoil_moment *moment);
/* For who waits for it, a few times a second: the log goes on meanwhile. 0: the backup has failed, there is nothing to wait for. */
uint8_t trefoil_moment_wait(trefoil_moment *moment);

/* For administrators: numbers with their names, as many as there is room for; a text, cut where the room ends. */
typedef struct { const char *name; uint64_t value; } trefoil_number;
static_assert(sizeof(trefoil_number) == 16, "as in status.rs");
uint32_t trefoil_numbers(trefoil_database *db, trefoil_number *out, uint32_t room);
size_t trefoil_report(trefoil_database *db, char *out, size_t room);
size_t trefoil_latest_deadlock(trefoil_database *db, char *out, size_t room);

/* Tables of INFORMATION_SCHEMA, by name. A table is gathered as a whole when it is opened; nothing of the engine is held
   while its rows are handed out. */
enum {
  TREFOIL_VIEW_NUMBER = 1,
  TREFOIL_VIEW_TEXT = 2,
  TREFOIL_VIEW_RATIO = 3,
  TREFOIL_VIEW_TIME = 4,   /* a number: seconds since 1970 */
  TREFOIL_VIEW_PATH = 5,   /* a text: a piece of the server's path of a table */
  TREFOIL_VIEW_QUERY = 6   /* a number: a connection, whose statement is shown */
};
typedef struct {
  const char *name;
  uint32_t length;         /* characters of a text */
  uint8_t kind;
  uint8_t reserved[3];
} trefoil_column;
static_assert(sizeof(trefoil_column) == 16, "as in abi.rs");
typedef struct {
  uint8_t is_null;
  uint8_t reserved[7];
  uint64_t number;
  double ratio;
  trefoil_text text;
} trefoil_view_value;
static_assert(sizeof(trefoil_view_value) == 40, "as in abi.rs");
typedef struct trefoil_view_rows trefoil_view_rows;
/* 0: there are no more columns, or there is no such table. */
uint8_t trefoil_view_column(trefoil_text view, uint32_t n, trefoil_column *out);
int trefoil_view_open(trefoil_database *db, trefoil_text view, trefoil_view_rows **out, trefoil_failure *why);
/* A value for each column, until the next call; null behind the last row. */
const trefoil_view_value *trefoil_view_next(trefoil_view_rows *rows);
void trefoil_view_close(trefoil_view_rows *rows);

/* Takes the default for a setting of a key that no index can have: TREFOIL_UNSUPPORTED, and `why` says which it was. To be
   asked until it is TREFOIL_OK. Name and parts are not looked at. */
int trefoil_key_fit(trefoil_key *key, trefoil_failure *why);

/* How long a change of a table waits for who has written to it, and for another change of it. `goes_on` is asked now and then,
   by any thread, until the call is done: 0 ends it with TREFOIL_CANCELLED. */
typedef struct {
  uint64_t lock_timeout_ms;
  int (*goes_on)(void *of); /* or null */
  void *of;
  uint8_t unchecked_foreign_keys; /* what they need may go */
  uint8_t drops_database;         /* with all its tables: what they need of each other may go */
  uint8_t reserved[6];
} trefoil_patience;
#ifdef __cplusplus
static_assert(sizeof(trefoil_patience) == 32, "as in abi.rs");
#endif

/* Tables, by the server's path of them. `wait` may be null: as long as is usual. */
int trefoil_table_create(trefoil_database *db, trefoil_text name, const trefoil_definition *as,
                         uint64_t auto_increment, const trefoil_foreign_change *foreign, const trefoil_patience *wait,
                         trefoil_failure *why);
/* The labels are its names as the server shows them: what foreign keys are called that were given no name begins with them. */
int trefoil_table_rename(trefoil_database *db, trefoil_text from, trefoil_text to, trefoil_text label, trefoil_text new_label,
                         const trefoil_patience *wait, trefoil_failure *why);
/* Empties it, in a moment, while nobody else has it open; cursors are attached to it again. */
int trefoil_table_truncate(trefoil_table *table, const trefoil_patience *wait, trefoil_failure *why);
/* Until each transaction that has written to it is decided, prepared ones too. */
int trefoil_table_wait(trefoil_table *table, const trefoil_patience *wait, trefoil_failure *why);
/* Checks its indexes; if it is `thorough`, its rows against them. TREFOIL_CORRUPT if anything was said. `report` is told how
   much of about how much is done. */
int trefoil_table_check(trefoil_session *session, trefoil_table *table, uint8_t thorough,
                        void (*say)(void *to, trefoil_text what), void (*report)(void *to, uint64_t done, uint64_t total),
                        void *to, trefoil_failure *why);
/* The same, and keys in which something is wrong are made anew from the rows, which `say` is told. TREFOIL_CORRUPT if the rows
   are damaged; then nothing was changed. */
int trefoil_table_repair(trefoil_session *session, trefoil_table *table, uint8_t thorough,
                         void (*say)(void *to, trefoil_text what), void (*report)(void *to, uint64_t done, uint64_t total),
                         void *to, const trefoil_patience *wait, trefoil_failure *why);
/* Of keys that are built for it now: how many rows of about how many are in them. 0 if none are. */
uint8_t trefoil_table_building(const trefoil_table *table, uint64_t *done, uint64_t *total);
/* Those whose names begin with `prefix`. */
int trefoil_tables_drop(trefoil_database *db, trefoil_text prefix, const trefoil_patience *wait, trefoil_failure *why);
/* `of`: who drops it within a statement that has written to it, or null. Its transaction is rolled back: the server has
   committed what was before, and undoes this statement (CREATE ... SELECT that fails). A temporary table may go in the
   middle of a transaction, which goes on: the table goes with its end. */
int trefoil_table_drop(trefoil_database *db, trefoil_text name, trefoil_session *of, const trefoil_patience *wait,
                       trefoil_failure *why);
/* Temporary tables of the server before, and what its changes of tables had built. */
int trefoil_leftovers_drop(trefoil_database *db, trefoil_failure *why);
int trefoil_table_open(trefoil_database *db, trefoil_text name, const trefoil_definition *as, trefoil_table **out,
                       trefoil_failure *why);
void trefoil_table_close(trefoil_table *table);
uint32_t trefoil_table_ref_length(const trefoil_table *table);
/* Less than, equal to, greater than 0, as the rows lie. */
int trefoil_compare_refs(const trefoil_table *table, const uint8_t *a, const uint8_t *b);
void trefoil_table_stat(const trefoil_table *table, trefoil_table_stats *out);

/* A table changed in place. `from`: for each field of `to` the number of the field that it was, or -1. `builds`:
   TREFOIL_BUILDS_KEYS, TREFOIL_BUILDS_ROWS, or 0. TREFOIL_UNSUPPORTED: it takes a copy. */
int trefoil_alter_plan(trefoil_table *table, const trefoil_definition *to, const int32_t *from,
                       const trefoil_foreign_change *foreign, trefoil_alter **out, uint8_t *builds,
                       trefoil_failure *why);
/* Builds indexes and rows, beside writers. TREFOIL_DUPLICATE: `why.key` is the number of the key in `to`, its value in `record`. */
int trefoil_alter_build(trefoil_alter *alter, uint8_t *record, const trefoil_patience *wait, trefoil_failure *why);
/* While nobody else has the table open. Behind it what was built is gone: undone, if it failed. */
int trefoil_alter_commit(trefoil_alter *alter, const trefoil_patience *wait, trefoil_failure *why);
int trefoil_alter_undo(trefoil_alter *alter, trefoil_failure *why);
void trefoil_alter_close(trefoil_alter *alter);
/* A number of the definition, another one once a change is committed. */
int trefoil_definition_id(trefoil_database *db, trefoil_text name, uint64_t *id, trefoil_failure *why);
uint64_t trefoil_table_definition_id(trefoil_table *table);

/* Numbers of AUTO_INCREMENT. `key` is one whose first part is that column. `count`: how many are wanted, and how many there are: 0 if it fails. */
int trefoil_auto_reserve(trefoil_table *table, uint32_t key, uint64_t offset, uint64_t increment, uint64_t *count,
                         uint64_t *first, trefoil_failure *why);
int trefoil_auto_raise(trefoil_table *table, uint32_t key, uint64_t used, trefoil_failure *why);
int trefoil_auto_next(trefoil_table *table, uint32_t key, uint64_t *next, trefoil_failure *why);

/* One connection, `thread` of the server, which calls it `connection`; 0: of several, one after the other. A session is used by one thread at a time, its canceller by any. */
int trefoil_session_open(trefoil_database *db, uint64_t thread, void *connection, trefoil_session **out,
                         trefoil_canceller **canceller, trefoil_failure *why);
void trefoil_session_close(trefoil_session *session, trefoil_canceller *canceller);
void trefoil_cancel(const trefoil_canceller *canceller);

typedef struct {
  uint8_t isolation;          /* 0 to 3, READ UNCOMMITTED to SERIALIZABLE */
  uint8_t snapshot_isolation;
  uint8_t unchecked_foreign_keys;
  uint8_t reserved[5];
  uint64_t lock_timeout_ms;
} trefoil_begin_options;

/* Begins a transaction unless one runs, and a statement unless one is open. */
int trefoil_statement(trefoil_session *session, const trefoil_begin_options *options, trefoil_failure *why);
void trefoil_statement_end(trefoil_session *session);
int trefoil_statement_undo(trefoil_session *session, trefoil_failure *why);
int trefoil_commit(trefoil_session *session, uint8_t durability, trefoil_failure *why);
int trefoil_rollback(trefoil_session *session, trefoil_failure *why);
int trefoil_savepoint(trefoil_session *session, uint64_t *out, trefoil_failure *why);
int trefoil_savepoint_undo(trefoil_session *session, uint64_t savepoint, trefoil_failure *why);
/* 1 if nobody waits for the transaction, and it relies on no table's definition. */
uint8_t trefoil_holds_nothing(const trefoil_session *session);
void trefoil_savepoint_release(trefoil_session *session, uint64_t savepoint);

/* The transaction's snapshot, taken now: where the server orders commits it shows what the server's log holds. */
int trefoil_snapshot(trefoil_session *session, trefoil_failure *why);

/* Two-phase commit. trefoil_order comes between trefoil_prepare with `to_order` and trefoil_commit, in any thread. */
typedef struct { uint32_t length; uint8_t bytes[140]; } trefoil_xid;
static_assert(sizeof(trefoil_xid) == 144, "as in abi.rs");
int trefoil_prepare(trefoil_session *session, const trefoil_xid *xid, uint8_t to_order,
                    uint8_t durability, trefoil_failure *why);
void trefoil_order(trefoil_session *session);
uint32_t trefoil_prepared(trefoil_database *db, uint32_t skip, trefoil_xid *out, uint32_t room);
int trefoil_decide(trefoil_database *db, const trefoil_xid *xid, uint8_t commit, trefoil_failure *why);

/* Reading: one cursor for each handler. */
enum { TREFOIL_UNLOCKED = 0, TREFOIL_SHARED = 1, TREFOIL_EXCLUSIVE = 2 };
enum { TREFOIL_WAIT = 0, TREFOIL_NO_WAIT = 1, TREFOIL_SKIP_LOCKED = 2 };
typedef struct { uint8_t mode; uint8_t wait; } trefoil_lock;

trefoil_cursor *trefoil_cursor_open(trefoil_table *table);
void trefoil_cursor_close(trefoil_cursor *cursor);
void trefoil_cursor_attach(trefoil_cursor *cursor, trefoil_table *table);
void trefoil_cursor_reset(trefoil_cursor *cursor);

enum {
  TREFOIL_EXACT = 0,       /* the first row whose key begins with the parts given; steps stay among those */
  TREFOIL_FROM = 1,        /* the first row at or behind them */
  TREFOIL_BEHIND = 2,      /* the first row behind all that begin with them */
  TREFOIL_LAST_EXACT = 3,  /* the last row whose key begins with them */
  TREFOIL_UP_TO = 4,       /* the last row at or before them */
  TREFOIL_BEFORE = 5       /* the last row before all that begin with them */
};
/* 0 no, 1 yes, 2 no, nor any behind it; anything else ends the scan as cancelled. */
typedef int (*trefoil_judge)(void *with, void *tag, const uint8_t *ref);

/* The other end of a range, where it is known. */
enum { TREFOIL_OPEN_END = 0, TREFOIL_END_INCLUDED = 1, TREFOIL_END_EXCLUDED = 2 };

typedef struct {
  const uint8_t *image;    /* a key as the server hands it over; null: from the first row, or the last */
  size_t image_length;
  const uint8_t *end;
  size_t end_length;
  int32_t key;             /* number of the key; -1: rows in their own order */
  uint8_t how;
  uint8_t end_is;
  trefoil_lock lock;
  uint8_t only_key;        /* records get the columns of the key and of the primary key, and no others */
  uint8_t claims;          /* first locks the value of the key, exclusively, until the end of the transaction */
  uint8_t judges_refs;     /* `judge` gets references of the rows, otherwise null */
  uint8_t shows_locked;    /* rows that others have locked are shown before they are waited for: trefoil_is_shown */
  uint32_t reads_length;
  uint64_t sure;           /* so many rows will be asked for, as far as there are: they may be locked ahead; UINT64_MAX: all */
  /* Or null: says of an entry whose columns stand in the record of trefoil_step whether its row is wanted. */
  trefoil_judge judge;
  void *judge_with;
  void *tag;               /* what the caller knows the range by: never followed */
  /* A bit for each column by its `number`, the lowest of a byte first: no others are filled in, but for those of the primary
     key and of the key that is read by. Null: all. */
  const uint8_t *reads;
} trefoil_seek;
static_assert(sizeof(trefoil_seek) == 88, "as in abi.rs");

/* About how many committed rows lie in a range, given as for reading: 0 if surely none. */
int trefoil_estimate(const trefoil_table *table, const trefoil_seek *range, uint64_t *rows, trefoil_failure *why);
/* For 1, 2 … columns of a key, behind which stand those of the primary key, how many different values they have. */
int trefoil_distinct(const trefoil_table *table, uint32_t key, uint64_t *out, uint32_t room, trefoil_failure *why);
/* Counts them anew. */
int trefoil_analyze(const trefoil_table *table, trefoil_failure *why);

/* Starts reading; trefoil_step gives the rows, the first one by TREFOIL_FIRST. */
int trefoil_find(trefoil_session *session, trefoil_cursor *cursor, const trefoil_seek *seek, trefoil_failure *why);
enum { TREFOIL_FIRST = 0, TREFOIL_NEXT = 1, TREFOIL_NEXT_SAME = 2, TREFOIL_PREVIOUS = 3 };
int trefoil_step(trefoil_session *session, trefoil_cursor *cursor, uint8_t where, uint8_t *record,
                 trefoil_failure *why);
/* Many ranges of one key, forward and without locks: the rows of one behind those of another, each with its range's tag.
   `next` fills in a range and returns 0, or another number behind the last; it is called, and the judge, within
   trefoil_step_ranges, for as many ranges ahead as rows are read at once. */
void trefoil_find_ranges(trefoil_cursor *cursor, int (*next)(void *with, trefoil_seek *range), void *with);
int trefoil_step_ranges(trefoil_session *session, trefoil_cursor *cursor, uint8_t *record, void **tag,
                        trefoil_failure *why);
int trefoil_read_ref(trefoil_session *session, trefoil_cursor *cursor, const uint8_t *ref, trefoil_lock lock,
                     uint8_t *record, trefoil_failure *why);
/* Where `record` is, or, if rows have hidden numbers, the row read or written last. */
int trefoil_position(trefoil_cursor *cursor, const uint8_t *record, uint8_t *ref, trefoil_failure *why);
/* The row given last is not locked: it is another's, as it was committed. The next step in the direction of the scan gives it
   again, under its lock, unless it is passed. */
uint8_t trefoil_is_shown(const trefoil_cursor *cursor);
/* The row given last has the parts that the scan was begun with, as has each that TREFOIL_NEXT_SAME gives. */
uint8_t trefoil_is_exact(const trefoil_cursor *cursor);
/* The row read last is not wanted. */
void trefoil_unlock_row(trefoil_session *session, trefoil_cursor *cursor);

/* Writing. */
int trefoil_insert(trefoil_session *session, trefoil_cursor *cursor, const uint8_t *record, trefoil_failure *why);
int trefoil_update(trefoil_session *session, trefoil_cursor *cursor, const uint8_t *old, const uint8_t *record,
                   trefoil_failure *why);
int trefoil_delete(trefoil_session *session, trefoil_cursor *cursor, const uint8_t *record, trefoil_failure *why);
/* The same of a row that nobody has read, named by its reference: `record` is all of what it becomes. TREFOIL_NOT_FOUND if it was
   looked for and is not there; it is not looked for where a table keeps nothing of a row but the row. */
int trefoil_apply_update(trefoil_session *session, trefoil_cursor *cursor, const uint8_t *ref, const uint8_t *record,
                         trefoil_failure *why);
int trefoil_apply_delete(trefoil_session *session, trefoil_cursor *cursor, const uint8_t *ref, trefoil_failure *why);
}

#endif

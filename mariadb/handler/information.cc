/* SPDX-License-Identifier: GPL-2.0-only
   Tables of INFORMATION_SCHEMA. Which there are, their columns and their rows, is known to the engine: here they are made
   tables of the server, and values are copied. Who looks needs the privilege PROCESS, as for InnoDB's. */
#include "information.h"

#include "errors.h"

#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_show.h"
#include "sql_table.h"
#include "tztime.h"
#include "versions.h"

#include <shared_mutex>
#include <vector>

/* Characters of a statement that are shown, as of InnoDB's. */
static constexpr uint query_length= 1024;

/* Held by who looks, so that the database is not closed meanwhile. */
static std::shared_mutex in_use;
static bool is_open;

static trefoil_text name_of(const char *view) { return text(view, strlen(view)); }

static Show::Type type_of(const trefoil_column &column)
{
  switch (column.kind) {
  case TREFOIL_VIEW_TEXT: return Show::Varchar(column.length);
  case TREFOIL_VIEW_RATIO: return Show::Double(MAX_DOUBLE_STR_LENGTH);
  case TREFOIL_VIEW_TIME: return Show::Datetime(0);
  case TREFOIL_VIEW_PATH: return Show::Varchar(NAME_CHAR_LEN * 2);
  case TREFOIL_VIEW_QUERY: return Show::Varchar(query_length);
  default: return Show::ULonglong();
  }
}

/* Columns that the server keeps pointers to until it ends. */
static std::vector<ST_FIELD_INFO> *columns_of(const char *view)
{
  std::vector<ST_FIELD_INFO> *columns= new std::vector<ST_FIELD_INFO>;
  trefoil_column column;
  for (uint32_t n= 0; trefoil_view_column(name_of(view), n, &column); n++)
    columns->push_back(Show::Column(column.name, type_of(column), NULLABLE));
  columns->push_back(Show::CEnd());
  return columns;
}

/* As users write it: each piece of the path that the server encoded. What holds no name is shown as it is. */
static int store_path(Field *field, const trefoil_text &path)
{
  std::string shown, piece;
  char decoded[NAME_LEN + 1];
  for (size_t n= 0; n <= path.len; n++)
  {
    if (n < path.len && path.ptr[n] != '#')
    {
      piece+= path.ptr[n];
      continue;
    }
    if (piece.size() < NAME_LEN && filename_to_tablename(piece.c_str(), decoded, sizeof decoded, true) && *decoded != '#')
      piece= decoded;
    shown+= piece;
    piece.clear();
    if (n < path.len)
      shown+= '#';
  }
  return field->store(shown.data(), shown.size(), system_charset_info);
}

static int store_time(THD *thd, Field *field, uint64_t seconds)
{
  MYSQL_TIME time;
  thd->variables.time_zone->gmt_sec_to_TIME(&time, (my_time_t) seconds);
  return field->store_time(&time);
}

/* The connection may have gone, and may do something else by now. It does not go while it is looked at. */
static int store_query(Field *field, uint64_t connection)
{
  char query[query_length];
  size_t length= 0;
  if (THD *of= find_thread_by_id((longlong) connection))
  {
    length= thd_query_safe(of, query, sizeof query);
    mysql_mutex_unlock(&of->LOCK_thd_kill);
  }
  if (length)
    return field->store(query, length, system_charset_info);
  field->set_null();
  return 0;
}

static int store(THD *thd, Field *field, uint8_t kind, const trefoil_view_value &value)
{
  field->set_null();
  if (value.is_null)
    return 0;
  field->set_notnull();
  switch (kind) {
  case TREFOIL_VIEW_TEXT: return field->store(value.text.ptr, value.text.len, system_charset_info);
  case TREFOIL_VIEW_RATIO: return field->store(value.ratio);
  case TREFOIL_VIEW_TIME: return store_time(thd, field, value.number);
  case TREFOIL_VIEW_PATH: return store_path(field, value.text);
  case TREFOIL_VIEW_QUERY: return store_query(field, value.number);
  default: return field->store((longlong) value.number, true);
  }
}

static int gather(const char *view, trefoil_view_rows **rows)
{
  std::shared_lock<std::shared_mutex> looks(in_use);
  if (!is_open)
    return 0;
  trefoil_failure why{};
  if (!trefoil_view_open(trefoil_db, name_of(view), rows, &why))
    return 0;
  my_error(ER_GET_ERRMSG, MYF(0), why.code, why.text, "TREFOIL");
  return 1;
}

static int fill(THD *thd, TABLE_LIST *tables, COND *)
{
  if (check_global_access(thd, PROCESS_ACL))
    return 1;
  const char *view= chars(tables->schema_table->table_name);
  TABLE *table= tables->table;
  trefoil_view_rows *rows= nullptr;
  if (gather(view, &rows))
    return 1;
  std::vector<uint8_t> kinds;
  trefoil_column column;
  while (trefoil_view_column(name_of(view), (uint32_t) kinds.size(), &column))
    kinds.push_back(column.kind);
  int error= 0;
  while (const trefoil_view_value *row= rows && !error ? trefoil_view_next(rows) : nullptr)
  {
    for (size_t n= 0; n < kinds.size(); n++)
      store(thd, table->field[n], kinds[n], row[n]);
    error= schema_table_store_record(thd, table);
  }
  if (rows)
    trefoil_view_close(rows);
  return error;
}

int make_view(void *plugin)
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(plugin);
  schema->fields_info= columns_of(chars(schema->table_name))->data();
  schema->fill_table= fill;
  return 0;
}

void open_views(bool are_open)
{
  std::unique_lock<std::shared_mutex> alone(in_use);
  is_open= are_open;
}

/* SPDX-License-Identifier: GPL-2.0-only
   Tables come, go, and are opened. */
#include "definition.h"
#include "foreign.h"
#include "errors.h"
#include "ha_trefoil.h"
#include "options.h"
#include "progress.h"
#include "transaction.h"

int ha_trefoil::open(const char *name, int, uint)
{
  lock_shared_ha_data();
  Shared *shared= static_cast<Shared *>(get_ha_share_ptr());
  if (!shared)
  {
    Definition definition(table);
    trefoil_table *opened= nullptr;
    if (trefoil_table_open(trefoil_db, table_name(name), definition.get(), &opened, &m_why))
    {
      unlock_shared_ha_data();
      return failed();
    }
    shared= new Shared(opened);
    set_ha_share_ptr(shared);
  }
  unlock_shared_ha_data();
  m_table= shared->m_table;
  m_cursor= trefoil_cursor_open(m_table);
  ref_length= trefoil_table_ref_length(m_table);
  /* A statement that changes this key while it scans the rows would meet what it wrote: the server then reads first. */
  key_used_on_scan= table->s->primary_key;
  return info(HA_STATUS_VARIABLE | HA_STATUS_CONST);
}

int ha_trefoil::close()
{
  trefoil_cursor_close(m_cursor);
  m_cursor= nullptr;
  if (m_own_session)
    trefoil_session_close(m_own_session, m_own_canceller);
  m_own_session= nullptr;
  return 0;
}

int ha_trefoil::create(const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  if (refuse_definition(form, info))
    return HA_WRONG_CREATE_OPTION;
  Definition definition(form);
  Foreign_change foreign(ha_thd(), form, info->alter_info, takes_place(name));
  if (foreign.get()->added_count && (info->options & HA_LEX_CREATE_TMP_TABLE))
    return HA_ERR_CANNOT_ADD_FOREIGN;
  if (foreign.meets_versions(ha_thd(), form, takes_place(name) ? foreign.get()->like : table_name(name)))
  {
    refuse_versions();
    return HA_WRONG_CREATE_OPTION;
  }
  if (const char *why= foreign.writes_under_generated(form, foreign.get()->like))
  {
    push_warning_printf(ha_thd(), Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, "ENGINE=TREFOIL: %s", why);
    return HA_ERR_CANNOT_ADD_FOREIGN;
  }
  trefoil_patience wait= patience_of(ha_thd());
  if (!trefoil_table_create(trefoil_db, table_name(name), definition.get(), info->auto_increment_value, foreign.get(), &wait,
                            &m_why))
    return 0;
  /* The server would tell it as a table that cannot be created. */
  if (m_why.code == TREFOIL_CANCELLED)
    ha_thd()->send_kill_message();
  if (int error= foreign_error(ha_thd(), m_why, takes_place(name)))
    return error;
  if (m_why.code == TREFOIL_UNSUPPORTED || m_why.code == TREFOIL_TOO_LONG)
  {
    uint error= m_why.code == TREFOIL_TOO_LONG ? ER_TOO_LONG_KEY : ER_UNSUPPORTED_EXTENSION;
    my_printf_error(error, "ENGINE=TREFOIL: %s", MYF(0), m_why.text);
    return HA_WRONG_CREATE_OPTION;
  }
  return end_error(ha_thd(), m_why);
}

int ha_trefoil::delete_table(const char *name)
{
  trefoil_patience wait= patience_of(ha_thd());
  return trefoil_table_drop(trefoil_db, table_name(name), session_of_drop(ha_thd()), &wait, &m_why) ? failed() : 0;
}

int ha_trefoil::rename_table(const char *from, const char *to)
{
  trefoil_patience wait= patience_of(ha_thd());
  std::string label= label_of(table_name(from)), new_label= label_of(table_name(to));
  return trefoil_table_rename(trefoil_db, table_name(from), table_name(to), text(label.data(), label.size()),
                              text(new_label.data(), new_label.size()), &wait, &m_why) ? end_error(ha_thd(), m_why) : 0;
}

int ha_trefoil::truncate()
{
  trefoil_patience wait= patience_of(ha_thd());
  if (trefoil_table_truncate(m_table, &wait, &m_why))
    return failed();
  trefoil_cursor_attach(m_cursor, m_table);
  return 0;
}

static void say(void *progress, trefoil_text what)
{
  THD *thd= static_cast<Progress *>(progress)->thd();
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "%.*s", (int) what.len, what.ptr);
}

static void say_progress(void *progress, uint64_t done, uint64_t total)
{
  static_cast<Progress *>(progress)->at(done, total);
}

static int end_of_check(THD *thd, int code, const trefoil_failure &why)
{
  if (code == TREFOIL_OK || code == TREFOIL_CORRUPT)
    return code == TREFOIL_OK ? HA_ADMIN_OK : HA_ADMIN_CORRUPT;
  if (code == TREFOIL_CANCELLED)
    thd->send_kill_message();
  else
    push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, why.text);
  return HA_ADMIN_FAILED;
}

int ha_trefoil::check(THD *thd, HA_CHECK_OPT *options)
{
  Progress progress(thd);
  int code= trefoil_table_check(m_session, m_table, !(options->flags & T_QUICK), say, say_progress, &progress, &m_why);
  return end_of_check(thd, code, m_why);
}

/* Of rows that are damaged nothing can be made. */
int ha_trefoil::repair(THD *thd, HA_CHECK_OPT *options)
{
  Build_progress building(thd, m_table);
  Progress *progress= &building;
  trefoil_patience wait= building.patience();
  int code= trefoil_table_repair(m_session, m_table, !(options->flags & T_QUICK), say, say_progress, progress, &wait, &m_why);
  if (code == TREFOIL_CORRUPT)
    say(progress, {m_why.text, strlen(m_why.text)});
  return end_of_check(thd, code, m_why);
}

/* A copy is packed anew. */
int ha_trefoil::optimize(THD *, HA_CHECK_OPT *) { return HA_ADMIN_TRY_ALTER; }

/* Asked of tables that take each other's place: a partition and a table. */
bool ha_trefoil::check_if_incompatible_data(HA_CREATE_INFO *info, uint changes)
{
  return changes == IS_EQUAL_YES && !options_differ(table->s, info) ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}

void ha_trefoil::update_create_info(HA_CREATE_INFO *info)
{
  if (info->used_fields & HA_CREATE_USED_AUTO)
    return;
  ha_trefoil::info(HA_STATUS_AUTO);
  info->auto_increment_value= stats.auto_increment_value;
}

/* SPDX-License-Identifier: GPL-2.0-only
   Tables come, go, and are opened. */
#include "definition.h"
#include "errors.h"
#include "ha_trefoil.h"

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
  return 0;
}

int ha_trefoil::create(const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  if (refuse_definition(form, info))
    return HA_WRONG_CREATE_OPTION;
  Definition definition(form);
  if (!trefoil_table_create(trefoil_db, table_name(name), definition.get(), info->auto_increment_value, &m_why))
    return 0;
  if (m_why.code == TREFOIL_UNSUPPORTED || m_why.code == TREFOIL_TOO_LONG)
  {
    my_printf_error(ER_UNSUPPORTED_EXTENSION, "ENGINE=TREFOIL: %s", MYF(0), m_why.text);
    return HA_WRONG_CREATE_OPTION;
  }
  return failed();
}

int ha_trefoil::delete_table(const char *name)
{
  return trefoil_table_drop(trefoil_db, table_name(name), session_of_drop(ha_thd()), &m_why) ? failed() : 0;
}

int ha_trefoil::rename_table(const char *from, const char *to)
{
  return trefoil_table_rename(trefoil_db, table_name(from), table_name(to), &m_why) ? failed() : 0;
}

int ha_trefoil::truncate() { return trefoil_table_truncate(m_table, &m_why) ? failed() : 0; }

/* The guesses about keys follow from the number of rows. */
int ha_trefoil::analyze(THD *, HA_CHECK_OPT *)
{
  return info(HA_STATUS_VARIABLE | HA_STATUS_CONST) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}

/* A copy is packed anew. */
int ha_trefoil::optimize(THD *, HA_CHECK_OPT *) { return HA_ADMIN_TRY_ALTER; }

void ha_trefoil::update_create_info(HA_CREATE_INFO *info)
{
  if (info->used_fields & HA_CREATE_USED_AUTO)
    return;
  ha_trefoil::info(HA_STATUS_AUTO);
  info->auto_increment_value= stats.auto_increment_value;
}

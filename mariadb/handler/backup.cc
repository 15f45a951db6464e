/* SPDX-License-Identifier: GPL-2.0-only
   SET GLOBAL trefoil_backup_dir: a hot backup. The caller's transaction, if there is one, stays as it is. */
#include "variables.h"

#include "errors.h"
#include "progress.h"

static uint8_t goes_on(void *with, uint64_t done, uint64_t total)
{
  const Progress *progress= static_cast<Progress *>(with);
  progress->at(done, total);
  return thd_kill_level(progress->thd()) == THD_IS_NOT_KILLED;
}

static bool make_backup(THD *thd, const char *directory, uint64_t rate)
{
  trefoil_failure why{};
  Progress progress(thd);
  switch (trefoil_backup(trefoil_db, text(directory, strlen(directory)), rate, goes_on, &progress, &why)) {
  case TREFOIL_OK:
    return true;
  case TREFOIL_CANCELLED:
    thd->send_kill_message();
    return false;
  default:
    my_error(ER_GET_ERRMSG, MYF(0), why.code, why.text, "TREFOIL");
    return false;
  }
}

/* Under the lock of all global variables, which is let go meanwhile: who shows or sets one does not wait for the copy. */
void set_backup_dir(THD *thd, uint64_t rate, char **to, const char *directory)
{
  if (!directory || !*directory)
    return;
  mysql_mutex_unlock(&LOCK_global_system_variables);
  char *last= my_strdup(PSI_NOT_INSTRUMENTED, directory, MYF(MY_WME));
  bool is_made= last && make_backup(thd, directory, rate);
  mysql_mutex_lock(&LOCK_global_system_variables);
  if (is_made)
    std::swap(*to, last);
  my_free(last);
}

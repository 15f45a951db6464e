/* SPDX-License-Identifier: GPL-2.0-only
   SET GLOBAL trefoil_backup_dir: a hot backup. The caller's transaction, if there is one, stays as it is.

   With the binary log its place is in the file `binlog_position` of the directory: name, offset, GTIDs. A transaction takes its place
   in the binary log first and in the engine later, and what is between differs: a commit that waits for a replica (AFTER_SYNC), users'
   XA, --binlog-optimize-thread-scheduling=OFF. So for the moment of the backup nobody is in between: the lock of BACKUP STAGE
   BLOCK_COMMIT is taken, which everybody who commits has shared from before the binary log to behind the engine. Then the binary log
   ends where the engine does. Whoever wants to commit waits for it, so it is asked for in short tries, and given back after one sync.

   Definitions have no such place: statements that change them are kept out by the lock that BACKUP STAGE BLOCK_DDL takes, from
   before the backup to its end. It is one backup's at a time, so no two of them wait for each other's locks. Whoever holds the stages
   of BACKUP STAGE himself has both, for himself. */
#include "variables.h"

#include "errors.h"
#include "progress.h"

/* In the server, and in none of its headers that engines may include. */
int gtid_state_from_binlog_pos(const char *file, uint32 offset, String *out);

static const char position_file[]= "binlog_position";

namespace
{
struct Backup
{
  Progress progress;
  /* There is no place, or it could not be written, and the client knows why. */
  bool is_refused= false;

  explicit Backup(THD *thd) : progress(thd) {}
};

/* A lock of the key BACKUP, if it is got. */
class Backup_lock
{
public:
  explicit Backup_lock(THD *thd) : m_thd(thd) {}
  Backup_lock(const Backup_lock &)= delete;
  void operator=(const Backup_lock &)= delete;
  bool acquire(enum_mdl_type type, double seconds)
  {
    MDL_REQUEST_INIT(&m_request, MDL_key::BACKUP, "", "", type, MDL_EXPLICIT);
    return m_is_held= !m_thd->mdl_context.acquire_lock(&m_request, seconds);
  }
  ~Backup_lock()
  {
    if (m_is_held)
      m_thd->mdl_context.release_lock(m_request.ticket);
  }

private:
  THD *const m_thd;
  MDL_request m_request;
  bool m_is_held= false;
};

/* Commits wait for so long at a time, and have so long in between. Less than the shortest lock_wait_timeout but 0: a commit that does
   not get its lock in that time is rolled back. */
const double try_seconds= 0.3;
const ulong rest_microseconds= 300000;
/* The engine's log is kept meanwhile, so it is not for long. */
const double all_tries_seconds= 60;
} // namespace

/* Nobody is between the binary log and the engine from then on. */
static bool hold_commits(THD *thd, Backup_lock &commits, trefoil_moment *moment)
{
  ulonglong began= microsecond_interval_timer();
  double limit= MY_MIN(all_tries_seconds, (double) thd->variables.lock_wait_timeout);
  for (;;)
  {
    Dummy_error_handler not_yet;
    thd->push_internal_handler(&not_yet);
    bool is_held= commits.acquire(MDL_BACKUP_WAIT_COMMIT, MY_MIN(try_seconds, limit));
    thd->pop_internal_handler();
    /* Others may wait for room in the log, and have what is waited for here. */
    if (is_held || thd_kill_level(thd) != THD_IS_NOT_KILLED || !trefoil_moment_wait(moment))
      return is_held;
    if ((double) (microsecond_interval_timer() - began) / 1e6 >= limit)
    {
      my_error(ER_LOCK_WAIT_TIMEOUT, MYF(0));
      return false;
    }
    my_sleep(rest_microseconds);
  }
}

static uint8_t goes_on(void *with, uint64_t done, uint64_t total)
{
  const Progress &progress= static_cast<Backup *>(with)->progress;
  progress.at(done, total);
  return thd_kill_level(progress.thd()) == THD_IS_NOT_KILLED;
}

static bool write_position(trefoil_text directory, const char *line, size_t length)
{
  char path[FN_REFLEN];
  if (directory.len + sizeof position_file + 1 > sizeof path)
  {
    my_error(ER_PATH_LENGTH, MYF(0), "trefoil_backup_dir");
    return false;
  }
  my_snprintf(path, sizeof path, "%.*s/%s", (int) directory.len, directory.ptr, position_file);
  File file= my_create(path, 0, O_WRONLY | O_EXCL, MYF(MY_WME));
  if (file < 0)
    return false;
  bool is_written= !my_write(file, (const uchar *) line, length, MYF(MY_WME | MY_NABP)) && !my_sync(file, MYF(MY_WME));
  return !my_close(file, MYF(MY_WME)) && is_written;
}

static uint8_t at_moment(void *with, trefoil_moment *moment, trefoil_text directory)
{
  Backup *backup= static_cast<Backup *>(with);
  if (!mysql_bin_log.is_open())
  {
    trefoil_moment_come(moment);
    return 1;
  }
  LOG_INFO place;
  {
    THD *thd= backup->progress.thd();
    Backup_lock commits(thd);
    if (!hold_commits(thd, commits, moment))
    {
      backup->is_refused= thd_kill_level(thd) == THD_IS_NOT_KILLED;
      return 0;
    }
    mysql_bin_log.get_current_log(&place);
    trefoil_moment_come(moment);
  }
  /* Reading the binary log may take a while: the engine's log goes on. */
  if (!trefoil_moment_wait(moment))
    return 0;
  const char *file= place.log_file_name + dirname_length(place.log_file_name);
  StringBuffer<1024> gtids;
  if (gtid_state_from_binlog_pos(file, (uint32) place.pos, &gtids))
    gtids.length(0);
  StringBuffer<2048> line;
  line.append(file, strlen(file));
  line.append('\t');
  line.append_ulonglong(place.pos);
  line.append('\t');
  line.append(gtids.ptr(), gtids.length());
  line.append('\n');
  backup->is_refused= !write_position(directory, line.ptr(), line.length());
  return !backup->is_refused;
}

static bool make_backup(THD *thd, const char *directory, uint64_t rate)
{
  trefoil_failure why{};
  Backup backup(thd);
  Backup_lock definitions(thd);
  if (!definitions.acquire(MDL_BACKUP_BLOCK_DDL, (double) thd->variables.lock_wait_timeout))
    return false;
  switch (trefoil_backup(trefoil_db, text(directory, strlen(directory)), rate, goes_on, at_moment, &backup, &why)) {
  case TREFOIL_OK:
    return true;
  case TREFOIL_CANCELLED:
    if (!backup.is_refused)
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

/* SPDX-License-Identifier: GPL-2.0-only
   SET GLOBAL trefoil_backup_dir: a hot backup. The caller's transaction, if there is one, stays as it is.

   With the binary log its place is in the file `binlog_position` of the directory: name, offset, GTIDs. A commit takes its place in
   the engine under LOCK_commit_ordered, in the order of the binary log; so under that lock both stand at one place, which is the
   backup's. Definitions have no such place: statements that change them are kept out by the lock that BACKUP STAGE BLOCK_DDL
   takes, from before the backup to its end. */
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
  const char *directory;
  /* The place could not be written, and the client knows why. */
  bool is_refused= false;

  Backup(THD *thd, const char *to) : progress(thd), directory(to) {}
};

struct Place
{
  char file[FN_REFLEN];
  my_off_t offset;
};

/* Keeps definitions as they are. */
class Definitions_kept
{
public:
  explicit Definitions_kept(THD *thd) : m_thd(thd) {}
  bool acquire()
  {
    MDL_REQUEST_INIT(&m_request, MDL_key::BACKUP, "", "", MDL_BACKUP_BLOCK_DDL, MDL_EXPLICIT);
    return m_is_held= !m_thd->mdl_context.acquire_lock(&m_request, m_thd->variables.lock_wait_timeout);
  }
  ~Definitions_kept()
  {
    if (m_is_held)
      m_thd->mdl_context.release_lock(m_request.ticket);
  }

private:
  THD *const m_thd;
  MDL_request m_request;
  bool m_is_held= false;
};
} // namespace

static uint8_t goes_on(void *with, uint64_t done, uint64_t total)
{
  const Progress &progress= static_cast<Backup *>(with)->progress;
  progress.at(done, total);
  return thd_kill_level(progress.thd()) == THD_IS_NOT_KILLED;
}

static bool write_position(const char *directory, const char *line, size_t length)
{
  char path[FN_REFLEN];
  my_snprintf(path, sizeof path, "%s/%s", directory, position_file);
  File file= my_create(path, 0, O_WRONLY | O_EXCL, MYF(MY_WME));
  if (file < 0)
    return false;
  bool is_written= !my_write(file, (const uchar *) line, length, MYF(MY_WME | MY_NABP)) && !my_sync(file, MYF(MY_WME));
  return !my_close(file, MYF(MY_WME)) && is_written;
}

static uint8_t at_moment(void *with, void (*let_come)(void *), void *moment)
{
  Backup *backup= static_cast<Backup *>(with);
  if (!mysql_bin_log.is_open())
  {
    let_come(moment);
    return 1;
  }
  Place place;
  mysql_mutex_lock(&LOCK_commit_ordered);
  strmake_buf(place.file, mysql_bin_log.last_commit_pos_file);
  place.offset= mysql_bin_log.last_commit_pos_offset;
  let_come(moment);
  mysql_mutex_unlock(&LOCK_commit_ordered);
  const char *file= place.file + dirname_length(place.file);
  StringBuffer<1024> gtids;
  if (gtid_state_from_binlog_pos(file, (uint32) place.offset, &gtids))
    gtids.length(0);
  StringBuffer<2048> line;
  line.append(file, strlen(file));
  line.append('\t');
  line.append_ulonglong(place.offset);
  line.append('\t');
  line.append(gtids.ptr(), gtids.length());
  line.append('\n');
  backup->is_refused= !write_position(backup->directory, line.ptr(), line.length());
  return !backup->is_refused;
}

static bool make_backup(THD *thd, const char *directory, uint64_t rate)
{
  trefoil_failure why{};
  Backup backup(thd, directory);
  Definitions_kept kept(thd);
  if (!kept.acquire())
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

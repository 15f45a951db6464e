/* SPDX-License-Identifier: GPL-2.0-only
   What SHOW STATUS and SHOW ENGINE TREFOIL STATUS print: the engine has names, numbers and text, all of one moment. */
#include "variables.h"

/* A number takes its place in the server's list and one of its own; both have to lie in the server's buffer. */
constexpr uint32_t most_numbers= SHOW_VAR_FUNC_BUFF_SIZE / (sizeof(SHOW_VAR) + sizeof(uint64_t)) - 1;

static int show_numbers(THD *, SHOW_VAR *to, void *buffer, system_status_var *, enum enum_var_type)
{
  trefoil_number numbers[most_numbers];
  uint32_t count= trefoil_db ? trefoil_numbers(trefoil_db, numbers, most_numbers) : 0;
  SHOW_VAR *shown= static_cast<SHOW_VAR *>(buffer);
  ulonglong *values= reinterpret_cast<ulonglong *>(shown + most_numbers + 1);
  for (uint32_t n= 0; n < count; n++)
  {
    values[n]= numbers[n].value;
    shown[n]= {numbers[n].name, &values[n], SHOW_ULONGLONG};
  }
  shown[count]= {NullS, NullS, SHOW_ULONGLONG};
  to->type= SHOW_ARRAY;
  to->value= shown;
  return 0;
}

SHOW_VAR trefoil_status[]=
{
  SHOW_FUNC_ENTRY("Trefoil", &show_numbers),
  {NullS, NullS, SHOW_LONG}
};

bool show_engine_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type what)
{
  static const char type[]= "TREFOIL";
  constexpr size_t room= 64 << 10;
  if (what != HA_ENGINE_STATUS)
    return false;
  char *report= static_cast<char *>(my_malloc(PSI_NOT_INSTRUMENTED, room, MYF(MY_WME)));
  if (!report)
    return true;
  size_t length= trefoil_report(trefoil_db, report, room);
  bool failed= print(thd, type, sizeof type - 1, "", 0, report, length);
  my_free(report);
  return failed;
}

/* SPDX-License-Identifier: GPL-2.0-only
   The server's collations, for the engine: called from its threads too, so nothing here asks for a connection. */
#include "collations.h"

#include <atomic>

#include "m_ctype.h"

/* Found once; a collation is never unloaded. */
static const CHARSET_INFO *find(uint32_t id)
{
  static std::atomic<const CHARSET_INFO *> found[MY_ALL_CHARSETS_SIZE];
  if (id >= MY_ALL_CHARSETS_SIZE)
    return nullptr;
  const CHARSET_INFO *cs= found[id].load(std::memory_order_acquire);
  if (!cs && (cs= get_charset(id, MYF(0))))
    found[id].store(cs, std::memory_order_release);
  return cs;
}

/* latin2_czech_cs and cp1250_czech_cs go over a text again and again, for each level, in one call. */
static bool goes_in_passes(const CHARSET_INFO *cs) { return cs->number == 2 || cs->number == 34; }

static uint8_t describe(uint32_t id, trefoil_collation *out) noexcept
{
  const CHARSET_INFO *cs= find(id);
  if (!cs)
    return 0;
  *out= {};
  out->in_passes= goes_in_passes(cs);
  out->levels= out->in_passes || !cs->levels_for_order ? 1 : cs->levels_for_order;
  /* Of a collation without padding the levels behind the first are padded nevertheless. */
  out->padded= cs->state & MY_CS_NOPAD ? (uint8_t) (out->levels & ~1) : out->levels;
  int length= my_ci_wc_mb(cs, ' ', out->space, out->space + sizeof out->space);
  out->space_length= length > 0 ? (uint8_t) length : 0;
  out->longest= (uint8_t) cs->mbmaxlen;
  return 1;
}

/* Of big5_chinese_ci and big5_chinese_nopad_ci the server's weights take for equal what it compares as different: two bytes
   stand for themselves. */
static size_t weights_of_big5(const CHARSET_INFO *cs, const uint8_t *text, size_t length, uint8_t *out, size_t room)
{
  const char *end= reinterpret_cast<const char *>(text) + length;
  size_t bytes= MY_MIN(length, room);
  for (size_t n= 0; n < bytes; n++)
  {
    bool is_two= n + 1 < bytes && my_ismbchar(cs, reinterpret_cast<const char *>(text) + n, end);
    out[n]= is_two ? text[n] : cs->sort_order[text[n]];
    if (is_two)
    {
      n++;
      out[n]= text[n];
    }
  }
  return bytes;
}

static size_t weights(uint32_t id, uint8_t level, const uint8_t *text, size_t length, uint8_t *out,
                      size_t room) noexcept
{
  const CHARSET_INFO *cs= find(id);
  if (id == 1 || id == 1025)
    return weights_of_big5(cs, text, length, out, room);
  uint flags= goes_in_passes(cs) ? 0 : MY_STRXFRM_LEVEL1 << level;
  return cs->coll->strnxfrm(cs, out, room, UINT_MAX32, text, length, flags);
}

static size_t front(uint32_t id, const uint8_t *text, size_t length, size_t characters, size_t *found) noexcept
{
  const CHARSET_INFO *cs= find(id);
  const char *start= reinterpret_cast<const char *>(text), *end= start + length;
  size_t bytes= MY_MIN(my_ci_charpos(cs, start, end, characters), length);
  *found= MY_MIN(my_ci_numchars(cs, start, start + bytes), characters);
  return bytes;
}

/* What the server keeps room for when it sorts. Weights of UCA have two bytes, and are not 0. */
static size_t weights_max(uint32_t id, size_t characters, size_t *zeros) noexcept
{
  const CHARSET_INFO *cs= find(id);
  size_t bytes= cs->coll->strnxfrmlen(cs, characters * cs->mbmaxlen);
  *zeros= cs->uca ? bytes / 2 : bytes;
  return bytes;
}

const trefoil_collations server_collations= {describe, weights, front, weights_max};

uint32_t collation_of(const Field *field)
{
  const CHARSET_INFO *cs= field->charset();
  /* Bytes; and single bytes whose order is theirs, and blanks at the end count. */
  if (!field->has_charset() || cs == &my_charset_bin || field->compression_method() ||
      ((cs->state & MY_CS_BINSORT) && (cs->state & MY_CS_NOPAD) && cs->mbmaxlen == 1))
    return 0;
  return cs->number;
}

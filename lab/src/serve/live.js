'use strict';
const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';

const brief = value => value == null ? '–' : value >= 1e6 ? (value / 1e6).toFixed(2) + 'm' : value >= 1e4 ? (value / 1e3).toFixed(0) + 'k'
  : value >= 100 ? value.toFixed(0) : value.toFixed(1);
const time = us => us == null ? '–' : us >= 1e6 ? (us / 1e6).toFixed(2) + ' s' : us >= 1e3 ? (us / 1e3).toFixed(1) + ' ms' : us.toFixed(0) + ' µs';

function add(parent, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

// Lines over the seconds of the step; columns are places in a point.
function chart(svg, points, columns, scale, marksStalls) {
  const [left, right, top, bottom] = [70, 850, 10, 190];
  svg.replaceChildren();
  const most = Math.max(1e-9, ...points.flatMap(point => columns.map(column => point[column] * scale))) * 1.1;
  const [from, to] = points.length ? [points[0][0], points[points.length - 1][0]] : [0, 1];
  const x = second => left + (right - left) * (to > from ? (second - from) / (to - from) : 1);
  const y = value => bottom - (bottom - top) * value / most;
  for (let part = 0; part <= 4; part++) {
    const value = most * part / 4;
    add(svg, 'line', { class: 'grid', x1: left, x2: right, y1: y(value), y2: y(value) });
    add(svg, 'text', { class: 'end', x: left - 6, y: y(value) + 4 }, brief(value));
  }
  add(svg, 'text', { x: left, y: bottom + 20 }, from.toFixed(0) + ' s');
  add(svg, 'text', { class: 'end', x: right, y: bottom + 20 }, to.toFixed(0) + ' s');
  columns.forEach((column, kind) => {
    if (!points.some(point => point[column] > 0)) return;
    const line = points.map(point => x(point[0]).toFixed(1) + ',' + y(point[column] * scale).toFixed(1)).join(' ');
    add(svg, 'polyline', { class: 'line c' + kind, points: line });
    const end = points[points.length - 1];
    add(svg, 'circle', { class: 'fill c' + kind, cx: x(end[0]), cy: y(end[column] * scale), r: 3 });
  });
  if (!marksStalls) return;
  for (const point of points) {
    if (columns.every(column => point[column] === 0)) {
      add(svg, 'line', { class: 'stall', x1: x(point[0]), x2: x(point[0]), y1: bottom - 12, y2: bottom });
    }
  }
}

function numbers(view) {
  const last = view.points[view.points.length - 1];
  const all = [['step', view.step ?? '–'], ['done', view.done == null ? '–' : (view.done * 100).toFixed(0) + ' %'],
    ['seconds', view.elapsed == null ? '–' : view.elapsed.toFixed(0)], ['inserts/s', brief(last?.[1])], ['deletes/s', brief(last?.[2])],
    ['queries/s', brief(last?.[3])], ['p99', time(view.p99_us)], ['slowest', last ? time(Math.max(last[4], last[5], last[6])) : '–'],
    ['stalls', view.stalls ?? '–'], ['turns', view.turns_done + ' of ' + view.turns]];
  $('numbers').replaceChildren(...all.map(([name, value]) => {
    const [box, number] = [document.createElement('div'), document.createElement('b')];
    number.textContent = value;
    box.append(number, name);
    return box;
  }));
}

function show(view) {
  $('what').textContent = [view.workload, view.target, view.case].filter(Boolean).join(' · ');
  numbers(view);
  chart($('rates'), view.points, [1, 2, 3], 1, true);
  chart($('worst'), view.points, [4, 5, 6], 1e-3, false);
  $('finished').replaceChildren(...view.finished.map(([target, step, rate, p99, stall]) => {
    const row = document.createElement('tr');
    row.append(...[target, step, brief(rate) + '/s', time(p99), stall == null ? '–' : time(stall * 1e3)].map((text, place) => {
      const cell = document.createElement(place ? 'td' : 'th');
      cell.textContent = text;
      return cell;
    }));
    return row;
  }));
  $('ended').hidden = view.running;
  $('ended').textContent = 'This run is not under way: ' + view.state + '.';
  document.title = (view.running ? '▶ ' : '') + view.run;
}

async function next(view) {
  try {
    const answer = await fetch('/live.json?run=' + encodeURIComponent(view.run));
    if (!answer.ok) throw new Error(answer.status);
    view = await answer.json();
    show(view);
  } catch (error) {
    $('ended').hidden = false;
    $('ended').textContent = 'lab serve does not answer: ' + error.message;
  }
  setTimeout(next, view.running ? 1000 : 5000, view);
}

const first = JSON.parse($('first').textContent);
show(first);
setTimeout(next, 1000, first);

// Numbers and times as text.

export function duration(seconds) {
  const whole = Math.max(0, seconds);
  if (whole < 10) return `${whole.toFixed(1)}s`;
  if (whole < 60) return `${Math.floor(whole)}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${String(Math.floor(whole % 60)).padStart(2, "0")}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(whole / 86400)}d ${Math.floor((whole % 86400) / 3600)}h`;
}

/** A short age, such as "3m". */
export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h`;
  return `${Math.floor(whole / 86400)}d`;
}

export const money = (usd) => (usd === 0 ? "$0" : usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`);

export const count = (number) => Number(number).toLocaleString("en-US");

export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

export const iso = (at) => new Date(at * 1000).toISOString();

// Settings and health: what podium doctor says, the models, who is signed in where, and notifications.

import { html } from "../vendor.mjs";
import { remove, signOut } from "../api.mjs";
import { session } from "../state.mjs";
import { Badge } from "../parts/badge.mjs";
import { Button } from "../parts/button.mjs";
import { useLoaded } from "../parts/loaded.mjs";
import { Loading, ProblemBanner } from "../parts/notices.mjs";
import { Value, isEmpty } from "../parts/columns.mjs";
import { NotificationSettings } from "../parts/notification_settings.mjs";
import { revealLine } from "../parts/reveal.mjs";
import { Age } from "../parts/time.mjs";
import { iso } from "../format.mjs";

const LEVELS = { fine: ["ok", "check", "well"], note: ["note", "dot", "quiet"], problem: ["problem", "cross", "failed"] };

function Section({ title, children, path, shows, loading }) {
  const { data, problem, reload } = useLoaded(path, { isFixed: true });
  return html`<section class="stack"><div class="row"><h2>${title}</h2><span class="gap"></span>
      <${Button} look="small" busy="Checking…" command=${reload.now}>Check again<//></div>${children}
    <${ProblemBanner} problem=${problem} />
    ${data ? shows(data, reload) : problem ? null : html`<${Loading} what=${loading} />`}</section>`;
}

function showFacts({ facts }) {
  return html`<ul class="list">${facts.map((fact, number) => {
    const [word, icon, tone] = LEVELS[fact.level] || [fact.level, "dot", "quiet"];
    return html`<li class="item health" key=${number}><${Badge} word=${word} icon=${icon} tone=${tone} /><span class="strong">${revealLine(fact.what)}</span>
      <span>${revealLine(fact.text)}</span></li>`;
  })}</ul>`;
}

function showModels(found) {
  return html`<dl class="facts">
      <dt>Default</dt><dd>${found.default.models.map((one) => html`<code key=${one}>${revealLine(one)}</code> `)}
        <span class="quiet">${found.default.host ? `at ${revealLine(found.default.host)}, ` : ""}because ${revealLine(found.default.because)}</span></dd>
      ${Object.entries(found.roles).map(([name, models]) => html`<dt key=${name}>${revealLine(name)}</dt><dd>${models.map(revealLine).join(", ")}</dd>`)}
      <dt>Coding agents</dt><dd>${listNames(found.coding_agents) || html`<span class="quiet">none found</span>`}</dd></dl>
    <ul class="list">${found.providers.map((one) => html`<${Provider} key=${one.name} provider=${one} columns=${found.columns.providers} />`)}</ul>`;
}

/** The columns that have a place of their own in the row of a provider; the others follow them. */
const PLACED = new Set(["name", "default_model", "key_name", "has_key"]);

function Provider({ provider: one, columns }) {
  return html`<li class="item row">
      ${one.has_key ? html`<${Badge} word="has a key" icon="check" tone="well" />` : html`<${Badge} word=${one.key_name ? "no key" : "needs no key"} icon="dot" />`}
      <span class="strong">${revealLine(one.name)}</span><span class="quiet small">${revealLine(one.default_model)}</span>
      ${columns.filter((column) => !PLACED.has(column.name) && !isEmpty(one[column.name])).map((column) => html`<span key=${column.name} class="quiet small">${column.heading} <${Value} column=${column} row=${one} /></span>`)}
      <span class="gap"></span>${one.key_name ? html`<code class="small">${revealLine(one.key_name)}</code>` : null}</li>`;
}

const listNames = (found) => (Array.isArray(found) ? found : Object.keys(found)).map(revealLine).join(", ");

function Token({ token, onRevoked }) {
  const isOwn = session.value && session.value.token.id === token.id;
  const revoke = async () => {
    await remove(`/api/tokens/${encodeURIComponent(token.id)}`);
    onRevoked();
    return `The token ${token.name} is revoked.`;
  };
  return html`<li class="item row"><span class="strong">${revealLine(token.name)}</span>${isOwn ? html`<${Badge} word="this browser" icon="dot" tone="works" />` : null}
    <span class="quiet small">${token.scopes.map(revealLine).join(", ")}</span><span class="gap"></span>
    <span class="quiet small">${token.last_used ? html`used <${Age} at=${token.last_used} after=" ago" />` : "never used"},
      ${token.expires ? html` until <time datetime=${iso(token.expires)}>${new Date(token.expires * 1000).toLocaleString("en-GB")}</time>` : " until it is revoked"}</span>
    ${isOwn ? null : html`<${Button} look="small danger" busy="Revoking…" command=${revoke}>Revoke<//>`}</li>`;
}

function showTokens({ tokens }, reload) {
  return html`<ul class="list">${tokens.map((one) => html`<${Token} key=${one.id} token=${one} onRevoked=${reload.now} />`)}</ul>`;
}

function Session() {
  const here = session.value;
  if (!here) return html`<${Loading} what="the session" />`;
  const facts = [["User", here.user], ["Repository", here.repo], ["Home", here.home], ["May", here.token.scopes.join(", ")]];
  return html`<section class="stack"><h2>Session</h2>
    <dl class="facts">${facts.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd class="mono">${revealLine(value)}</dd>`)}</dl>
    <div class="row"><${Button} busy="Signing out…" command=${signOut}>Sign out<//></div></section>`;
}

export default function Settings() {
  return html`<div class="screen-head"><h1>Settings and health</h1></div>
    <div class="stack wide settings">
      <${Session} />
      <${NotificationSettings} />
      <${Section} title="Health" path="/api/doctor" shows=${showFacts} loading="the checks" />
      <${Section} title="Models" path="/api/models" shows=${showModels} loading="the models" />
      <${Section} title="Tokens" path="/api/tokens" shows=${showTokens} loading="the tokens">
        <p class="quiet small">Every browser and program that is signed in. A revoked token stops working at once.</p><//></div>`;
}

// The steps of a plan as a graph of what has to be done before what.

import { html } from "../vendor.mjs";
import { Graph } from "./graph.mjs";
import { StepBox } from "./plan_step.mjs";

export function PlanGraph({ steps }) {
  const nodes = steps.map((step) => ({ id: step.id, content: html`<${StepBox} step=${step} />` }));
  const edges = steps.flatMap((step) => (step.depends_on || []).map((from) => ({ from, to: step.id })));
  return html`<${Graph} nodes=${nodes} edges=${edges} label="Steps and the steps that they depend on" size=${{ width: 220, height: 96 }} />`;
}

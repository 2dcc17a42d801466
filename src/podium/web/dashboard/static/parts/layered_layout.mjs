// Place the nodes of a directed graph in layers, so that edges point to later layers wherever that is possible.
// Maps hold the nodes, because an agent can choose any name as an id, even one that means something to an object.

/**
 * Return the place of each node as a map of `{layer, row}`, the number of layers, the most rows in a layer, and the
 * edges, each with `via`, the places that it passes on its way.
 *
 * A node comes one layer after the last of its predecessors. Edges that close a cycle are left out of this. Within a
 * layer, a node stands near its predecessors. An edge that skips layers has a place of its own in each of them, so that
 * it does not cross a node.
 */
export function layOut(ids, edges) {
  const known = new Set(ids);
  const forward = withoutCycles(known, edges.filter(({ from, to }) => known.has(from) && known.has(to) && from !== to));
  const layerOf = new Map(findLayers(known, Map.groupBy(forward, (edge) => edge.to)));
  const { bends, links } = splitLongEdges(forward, layerOf);
  const before = Map.groupBy(links, (edge) => edge.to);
  const layers = [];
  for (const [id, layer] of layerOf) (layers[layer] ||= []).push(id);
  const offsets = new Map();
  for (const layer of layers) {
    const centres = new Map(layer.map((id) => [id, findCentre(before.get(id) || [], offsets)]));
    layer.sort((one, other) => centres.get(one) - centres.get(other));
    layer.forEach((id, row) => offsets.set(id, row - (layer.length - 1) / 2));
  }
  const most = Math.max(1, ...layers.map((layer) => layer.length));
  const places = new Map();
  layers.forEach((layer, number) => {
    for (const id of layer) places.set(id, { layer: number, row: offsets.get(id) + (most - 1) / 2 });
  });
  const routed = edges.map((edge) => ({ ...edge, via: (bends.get(edge) || []).map((id) => places.get(id)) }));
  return { places, layers: layers.length, rows: most, edges: routed };
}

/** Add a symbol to every layer that an edge skips. Return these symbols by edge, and the edges between neighbours. */
function splitLongEdges(edges, layerOf) {
  const bends = new Map();
  const links = [];
  for (const edge of edges) {
    const via = [];
    for (let layer = layerOf.get(edge.from) + 1; layer < layerOf.get(edge.to); layer += 1) {
      const bend = Symbol("bend");
      layerOf.set(bend, layer);
      via.push(bend);
    }
    bends.set(edge, via);
    const stops = [edge.from, ...via, edge.to];
    stops.slice(1).forEach((to, number) => links.push({ from: stops[number], to }));
  }
  return { bends, links };
}

/** Return the edges without those that lead back to a node from which they can be reached. */
function withoutCycles(ids, edges) {
  const next = Map.groupBy(edges, (edge) => edge.from);
  const state = new Map();
  const kept = [];
  const visit = (id) => {
    state.set(id, "open");
    for (const edge of next.get(id) || []) {
      if (state.get(edge.to) === "open") continue;
      kept.push(edge);
      if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, "done");
  };
  for (const id of ids) if (!state.has(id)) visit(id);
  return kept;
}

function findLayers(ids, before) {
  const layers = new Map();
  const find = (id) => {
    if (!layers.has(id)) layers.set(id, Math.max(-1, ...(before.get(id) || []).map((edge) => find(edge.from))) + 1);
    return layers.get(id);
  };
  return [...ids].map((id) => [id, find(id)]);
}

/** Return the mean place of a node's predecessors. */
function findCentre(edges, offsets) {
  const rows = edges.map((edge) => offsets.get(edge.from)).filter((row) => row !== undefined);
  return rows.length ? rows.reduce((sum, row) => sum + row, 0) / rows.length : 0;
}

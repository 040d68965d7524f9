-- The demo's tables, made anew from the package molmass; see docs/decisions/0003-demo-data.md.
CREATE SCHEMA demo_data;

CREATE TABLE demo_data.series (
    name text PRIMARY KEY
);
COMMENT ON TABLE demo_data.series IS 'Chemical series, for example Noble gases or Transition metals.';

CREATE TABLE demo_data.element (
    number                 integer PRIMARY KEY CHECK (number > 0),
    symbol                 text    NOT NULL UNIQUE,
    name                   text    NOT NULL UNIQUE,
    series                 text    NOT NULL REFERENCES demo_data.series,
    "group"                integer NOT NULL CHECK ("group" BETWEEN 1 AND 18),
    period                 integer NOT NULL CHECK (period BETWEEN 1 AND 7),
    block                  text    NOT NULL CHECK (block IN ('s', 'p', 'd', 'f')),
    state                  text    CHECK (state IN ('solid', 'liquid', 'gas')),
    atomic_mass_u          numeric NOT NULL,
    density_g_per_cm3      numeric,
    melting_point_k        numeric,
    boiling_point_k        numeric,
    electronegativity      numeric,
    electron_affinity_ev   numeric,
    covalent_radius_a      numeric,
    atomic_radius_a        numeric,
    van_der_waals_radius_a numeric,
    electron_configuration text    NOT NULL,
    oxidation_states       text    NOT NULL
);
COMMENT ON TABLE  demo_data.element IS 'The chemical elements 1 to 109. NULL: not known to the source.';
COMMENT ON COLUMN demo_data.element.number IS 'Atomic number: protons.';
COMMENT ON COLUMN demo_data.element.series IS 'The chemical series it belongs to.';
COMMENT ON COLUMN demo_data.element.state IS 'At 295 K, from melting and boiling point.';
COMMENT ON COLUMN demo_data.element.atomic_mass_u IS 'Relative atomic mass.';
COMMENT ON COLUMN demo_data.element.density_g_per_cm3 IS 'At 295 K; of gases too (the source gives those in g/L).';
COMMENT ON COLUMN demo_data.element.melting_point_k IS 'In kelvin.';
COMMENT ON COLUMN demo_data.element.boiling_point_k IS 'In kelvin.';
COMMENT ON COLUMN demo_data.element.electronegativity IS 'On the Pauling scale.';
COMMENT ON COLUMN demo_data.element.electron_affinity_ev IS 'In electronvolts.';
COMMENT ON COLUMN demo_data.element.covalent_radius_a IS 'In angstrom.';
COMMENT ON COLUMN demo_data.element.atomic_radius_a IS 'In angstrom.';
COMMENT ON COLUMN demo_data.element.van_der_waals_radius_a IS 'In angstrom.';

CREATE TABLE demo_data.isotope (
    number      integer NOT NULL REFERENCES demo_data.element,
    mass_number integer NOT NULL CHECK (mass_number >= number),
    mass_u      numeric NOT NULL,
    abundance   numeric NOT NULL CHECK (abundance BETWEEN 0 AND 1),
    PRIMARY KEY (number, mass_number)
);
COMMENT ON TABLE  demo_data.isotope IS 'Natural isotopes; of an element without any, one isotope with the abundance 1.';
COMMENT ON COLUMN demo_data.isotope.mass_number IS 'Protons and neutrons together.';
COMMENT ON COLUMN demo_data.isotope.mass_u IS 'Relative mass of the isotope.';
COMMENT ON COLUMN demo_data.isotope.abundance IS 'Its share in the natural element, 0 to 1.';

CREATE TABLE demo_data.ionization_energy (
    number    integer NOT NULL REFERENCES demo_data.element,
    ordinal   integer NOT NULL CHECK (ordinal > 0),
    energy_ev numeric NOT NULL CHECK (energy_ev > 0),
    PRIMARY KEY (number, ordinal)
);
COMMENT ON TABLE  demo_data.ionization_energy IS 'Energy to remove the first, second ... electron.';
COMMENT ON COLUMN demo_data.ionization_energy.energy_ev IS 'In electronvolts.';

CREATE TABLE demo_data.element_name (
    name   text    PRIMARY KEY,
    number integer NOT NULL REFERENCES demo_data.element
);
COMMENT ON TABLE demo_data.element_name IS 'Names and spellings an element may be asked for by.';

CREATE TABLE demo_data.property_name (
    name     text PRIMARY KEY,
    property text NOT NULL
);
COMMENT ON TABLE demo_data.property_name IS 'Words a property in demo_data.measurement may be asked for by.';
INSERT INTO demo_data.property_name (name, property) VALUES
    ('atomic mass', 'atomic mass'), ('atomic weight', 'atomic mass'), ('weight', 'atomic mass'),
    ('heaviest', 'atomic mass'), ('heavier', 'atomic mass'), ('heavy', 'atomic mass'),
    ('lightest', 'atomic mass'), ('lighter', 'atomic mass'),
    ('density', 'density'), ('densest', 'density'), ('denser', 'density'), ('dense', 'density'),
    ('melting point', 'melting point'), ('melting temperature', 'melting point'),
    ('melt', 'melting point'),
    ('boiling point', 'boiling point'), ('boiling temperature', 'boiling point'),
    ('boil', 'boiling point'),
    ('electronegativity', 'electronegativity'), ('electronegative', 'electronegativity'),
    ('electron affinity', 'electron affinity'),
    ('covalent radius', 'covalent radius'), ('atomic radius', 'atomic radius'),
    ('van der Waals radius', 'van der Waals radius'),
    ('first ionization energy', 'first ionization energy'),
    ('ionization energy', 'first ionization energy');

CREATE VIEW demo_data.measurement AS
SELECT e.number, e.name AS element, e.series, m.property, m.value, m.unit
FROM demo_data.element e
LEFT JOIN demo_data.ionization_energy i ON i.number = e.number AND i.ordinal = 1,
LATERAL (VALUES
    ('atomic mass', e.atomic_mass_u, 'u'),
    ('density', e.density_g_per_cm3, 'g/cm3'),
    ('melting point', e.melting_point_k, 'K'),
    ('boiling point', e.boiling_point_k, 'K'),
    ('electronegativity', e.electronegativity, 'on the Pauling scale'),
    ('electron affinity', e.electron_affinity_ev, 'eV'),
    ('covalent radius', e.covalent_radius_a, 'angstrom'),
    ('atomic radius', e.atomic_radius_a, 'angstrom'),
    ('van der Waals radius', e.van_der_waals_radius_a, 'angstrom'),
    ('first ionization energy', i.energy_ev, 'eV')
) AS m (property, value, unit)
WHERE m.value IS NOT NULL;
COMMENT ON VIEW demo_data.measurement IS 'One row per element and property that is known, with its unit.';

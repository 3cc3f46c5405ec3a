# Draws the figures of P3 from the CSV beside this script: gnuplot plot.gp
set terminal svg size 800,420 dynamic
set datafile separator comma
set key outside below
set grid

set output 'figure-5-6.svg'
set title 'seats and queues with control' noenhanced
set xlabel 'phase' noenhanced
set ylabel 'requests' noenhanced
plot for [column=2:5] 'figure-5-6.csv' using 1:column with points title columnheader(column) noenhanced

set output 'figure-8-12.svg'
set title 'response times' noenhanced
set xlabel 'phase' noenhanced
set ylabel 'ms' noenhanced
plot for [column=2:5] 'figure-8-12.csv' using 1:column with points title columnheader(column) noenhanced

set output 'figure-10-11.svg'
set title 'utilities' noenhanced
set xlabel 'phase' noenhanced
set ylabel 'utility' noenhanced
plot for [column=2:5] 'figure-10-11.csv' using 1:column with points title columnheader(column) noenhanced
